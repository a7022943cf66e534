// Which instruction set the kernels use.
#ifdef SEEGERA_REGISTER

#include "isa.h"

#include <cstdlib>
#include <cstring>

namespace seegera {
namespace {

Isa best() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
        return Isa::avx512;
    }
    if (avx2) {
        return Isa::avx2;
    }
#endif
    return Isa::base;
}

Isa wanted_or_best() {
    const Isa limit = best();
    const char* name = std::getenv("SEEGERA_ISA");
    if (name != nullptr) {
        if (std::strcmp(name, "base") == 0) {
            return Isa::base;
        }
        if (std::strcmp(name, "avx2") == 0 && limit != Isa::base) {
            return Isa::avx2;
        }
    }
    return limit;
}

}  // namespace

Isa isa() {
    static const Isa chosen = wanted_or_best();
    return chosen;
}

}  // namespace seegera

// "base", "avx2" or "avx512": for tests and for `seegera-fast info`.
extern "C" __attribute__((visibility("default"))) const char* seegera_isa() {
    switch (seegera::isa()) {
        case seegera::Isa::avx512:
            return "avx512";
        case seegera::Isa::avx2:
            return "avx2";
        default:
            return "base";
    }
}

#endif
