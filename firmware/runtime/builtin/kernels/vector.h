// Which vector instructions kernels use. The class says what the build stands for, the feature
// macro what the compiler can emit: a host build of any class takes the scalar forms.
#pragma once

#include "platform/isa.h"

#if defined(HIL_ISA_MVE) && defined(__ARM_FEATURE_MVE)
#define HIL_VECTOR_MVE 1
#include <arm_mve.h>
#elif defined(HIL_ISA_DSP) && defined(__ARM_FEATURE_DSP)
#define HIL_VECTOR_DSP 1
#include <arm_acle.h>
#endif
