// The ISA class of this build (one of CMSIS-NN's three code paths), checked against the compiler's
// flags.
#pragma once

#if defined(HIL_ISA_MVE) + defined(HIL_ISA_DSP) + defined(HIL_ISA_SCALAR) != 1
#error "define exactly one of HIL_ISA_MVE, HIL_ISA_DSP, HIL_ISA_SCALAR"
#endif

namespace hil {

#if defined(HIL_ISA_MVE)
constexpr char kIsaName[] = "MVE";
#elif defined(HIL_ISA_DSP)
constexpr char kIsaName[] = "DSP";
#else
constexpr char kIsaName[] = "SCALAR";
#endif

#if defined(__arm__)

#if defined(__ARM_FEATURE_MVE)
constexpr bool kCompilerHasMve = true;
#else
constexpr bool kCompilerHasMve = false;
#endif

#if defined(__ARM_FEATURE_DSP)
constexpr bool kCompilerHasDsp = true;
#else
constexpr bool kCompilerHasDsp = false;
#endif

// GCC has no way to take the DSP extension from an ARMv7E-M core: SCALAR is then up to the sources.
#if defined(__ARM_ARCH_7EM__)
constexpr bool kDspIsFixed = true;
#else
constexpr bool kDspIsFixed = false;
#endif

#if defined(HIL_ISA_MVE)
static_assert(kCompilerHasMve, "ISA class MVE needs a compiler target with MVE");
#elif defined(HIL_ISA_DSP)
static_assert(kCompilerHasDsp && !kCompilerHasMve, "ISA class DSP needs DSP and no MVE");
#else
static_assert(!kCompilerHasMve && (!kCompilerHasDsp || kDspIsFixed),
              "ISA class SCALAR needs neither DSP nor MVE");
#endif

#endif  // __arm__

// The architecture that the compiler's flags select, independent of the build's configuration.
#if !defined(__arm__)
#define HIL_ARCHITECTURE "host"
#elif defined(__ARM_ARCH_6M__)
#define HIL_ARCHITECTURE "armv6-m"
#elif defined(__ARM_ARCH_7M__)
#define HIL_ARCHITECTURE "armv7-m"
#elif defined(__ARM_ARCH_7EM__)
#define HIL_ARCHITECTURE "armv7e-m"
#elif defined(__ARM_ARCH_8M_BASE__)
#define HIL_ARCHITECTURE "armv8-m.base"
#elif defined(__ARM_ARCH_8M_MAIN__)
#define HIL_ARCHITECTURE "armv8-m.main"
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

constexpr char kArchitecture[] =
    HIL_ARCHITECTURE HIL_ARCHITECTURE_FP HIL_ARCHITECTURE_DSP HIL_ARCHITECTURE_MVE;

}  // namespace hil
