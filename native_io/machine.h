/* What depends on the machine: which instructions it has, and one way to compile a function for both kinds of machine.
 *
 * A wheel must run on every machine of its kind, so code for newer instructions is compiled twice and chosen at run
 * time. RMQ_PORTABLE leaves out all code special to one kind of machine, so that the code for others can be tested here
 * (make sanitize). */
#ifndef RMQ_MACHINE_H
#define RMQ_MACHINE_H

#if defined(__x86_64__) && !defined(RMQ_PORTABLE)
#define RMQ_X86 1
#else
#define RMQ_X86 0
#endif

/* The kind of machine that code is compiled for. It is known at compile time, so testing it costs nothing. */
typedef enum {
    RMQ_ANY_MACHINE,
    RMQ_AVX2_MACHINE, /* of x86-64, since about 2013 */
} rmq_machine;

#if RMQ_X86
#include <cpuid.h>
#include <immintrin.h>

#define RMQ_AVX2 __attribute__((target("avx2,bmi,bmi2,movbe,pclmul,popcnt")))

/* Set once, when the module is loaded; only read afterwards. Each module has its own, and all find the same. */
static int rmq_has_avx2;

__attribute__((constructor)) static void rmq_look_at_machine(void) {
    unsigned a, b, c, d;
    __builtin_cpu_init();
    /* All that RMQ_AVX2 names. Not every compiler's __builtin_cpu_supports knows movbe. */
    rmq_has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
                   __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("popcnt") && __get_cpuid(1, &a, &b, &c, &d) &&
                   (c & bit_MOVBE) != 0;
}

/* Defines `type name parameters`, which is name_on(the arguments, the machine that this runs on). name_on and what it calls
 * must be inline: `flatten` pulls all of it into one function, which is compiled for newer machines as a whole. */
#define RMQ_FOR_MACHINES(type, name, parameters, ...)                                          \
    RMQ_AVX2 __attribute__((flatten)) static type name##_avx2 parameters {                     \
        return name##_on(__VA_ARGS__, RMQ_AVX2_MACHINE);                                       \
    }                                                                                          \
    static type name parameters {                                                              \
        return rmq_has_avx2 ? name##_avx2(__VA_ARGS__) : name##_on(__VA_ARGS__, RMQ_ANY_MACHINE); \
    }
#else
#define RMQ_FOR_MACHINES(type, name, parameters, ...) \
    static type name parameters { return name##_on(__VA_ARGS__, RMQ_ANY_MACHINE); }
#endif

#endif
