// The vector instructions that kernels use: those of the build's ISA class, if the compiler can
// emit them by its feature macro. A host build of any class takes the scalar forms.
#pragma once

#include "target_library/isa.h"

#if defined(HIL_ISA_MVE) && defined(__ARM_FEATURE_MVE)
#define HIL_VECTOR_MVE 1
#include <arm_mve.h>
#elif defined(HIL_ISA_DSP) && defined(__ARM_FEATURE_DSP)
#define HIL_VECTOR_DSP 1
#include <arm_acle.h>
#endif
