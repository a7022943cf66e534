// Included first in every file of the CPU library, so that one built on a newer system loads on glibc 2.28, the oldest
// of the manylinux_2_28 wheels. glibc 2.29 has new versions of exp and log, which differ in how they set errno alone.
// By default a library is bound to the newest ones there are.
#pragma once

#ifdef __linux__
#include <features.h>
#if defined(__GLIBC__) && defined(__x86_64__)
__asm__(".symver exp, exp@GLIBC_2.2.5");
__asm__(".symver log, log@GLIBC_2.2.5");
#elif defined(__GLIBC__) && defined(__aarch64__)
__asm__(".symver exp, exp@GLIBC_2.17");
__asm__(".symver log, log@GLIBC_2.17");
#endif
#endif
