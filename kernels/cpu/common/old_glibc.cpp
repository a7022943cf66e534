// __libc_single_threaded, of glibc 2.32, tells libstdc++ whether reference counts need atomics. With one of its own,
// which says that they do, the library needs none of glibc's.
#ifdef SEEGERA_REGISTER

extern "C" __attribute__((visibility("hidden"))) char __libc_single_threaded;
char __libc_single_threaded = 0;

#endif
