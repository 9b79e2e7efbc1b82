// Which of CMSIS-NN's three code paths this build stands for, checked against the compiler's flags.
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

}  // namespace hil
