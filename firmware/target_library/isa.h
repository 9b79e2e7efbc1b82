// The ISA class of this build (one of CMSIS-NN's three code paths), which is the strongest that the
// compiler's flags allow, or is given and checked against them. C and C++.
#pragma once

#if !defined(HIL_ISA_MVE) && !defined(HIL_ISA_DSP) && !defined(HIL_ISA_SCALAR)
#if defined(__ARM_FEATURE_MVE)
#define HIL_ISA_MVE 1
#elif defined(__ARM_FEATURE_DSP)
#define HIL_ISA_DSP 1
#else
#define HIL_ISA_SCALAR 1
#endif
#endif

#if defined(HIL_ISA_MVE) + defined(HIL_ISA_DSP) + defined(HIL_ISA_SCALAR) != 1
#error "define exactly one of HIL_ISA_MVE, HIL_ISA_DSP, HIL_ISA_SCALAR"
#endif

#if defined(HIL_ISA_MVE)
#define HIL_ISA_NAME "MVE"
#elif defined(HIL_ISA_DSP)
#define HIL_ISA_NAME "DSP"
#else
#define HIL_ISA_NAME "SCALAR"
#endif

#if defined(__arm__)

#if defined(HIL_ISA_MVE)
#if !defined(__ARM_FEATURE_MVE)
#error "ISA class MVE needs a compiler target with MVE"
#endif
#elif defined(HIL_ISA_DSP)
#if !defined(__ARM_FEATURE_DSP) || defined(__ARM_FEATURE_MVE)
#error "ISA class DSP needs DSP and no MVE"
#endif
// GCC has no way to take the DSP extension from an ARMv7E-M core: SCALAR is then up to the sources.
#elif defined(__ARM_FEATURE_MVE) || (defined(__ARM_FEATURE_DSP) && !defined(__ARM_ARCH_7EM__))
#error "ISA class SCALAR needs neither DSP nor MVE"
#endif

#endif  // __arm__

// The architecture that the compiler's flags select, independent of the build's configuration.
#if !defined(__arm__)
#define HIL_ARCHITECTURE_CORE "host"
#elif defined(__ARM_ARCH_6M__)
#define HIL_ARCHITECTURE_CORE "armv6-m"
#elif defined(__ARM_ARCH_7M__)
#define HIL_ARCHITECTURE_CORE "armv7-m"
#elif defined(__ARM_ARCH_7EM__)
#define HIL_ARCHITECTURE_CORE "armv7e-m"
#elif defined(__ARM_ARCH_8M_BASE__)
#define HIL_ARCHITECTURE_CORE "armv8-m.base"
#elif defined(__ARM_ARCH_8M_MAIN__)
#define HIL_ARCHITECTURE_CORE "armv8-m.main"
#else
#error "an architecture unknown here"
#endif

#if !defined(__arm__) || !defined(__ARM_FP)
#define HIL_ARCHITECTURE_FP ""
#elif (__ARM_FP & 8) != 0
#define HIL_ARCHITECTURE_FP "+fp.dp"
#else
#define HIL_ARCHITECTURE_FP "+fp"
#endif

#if defined(__arm__) && defined(__ARM_FEATURE_DSP)
#define HIL_ARCHITECTURE_DSP "+dsp"
#else
#define HIL_ARCHITECTURE_DSP ""
#endif

#if !defined(__ARM_FEATURE_MVE)
#define HIL_ARCHITECTURE_MVE ""
#elif (__ARM_FEATURE_MVE & 2) != 0
#define HIL_ARCHITECTURE_MVE "+mve.fp"
#else
#define HIL_ARCHITECTURE_MVE "+mve"
#endif

#define HIL_ARCHITECTURE \
  HIL_ARCHITECTURE_CORE HIL_ARCHITECTURE_FP HIL_ARCHITECTURE_DSP HIL_ARCHITECTURE_MVE
