/* Which ways of doing the same thing are compiled. RMQ_PORTABLE leaves out all that is special to one kind of machine: the
 * code for the others can so be tested here (make sanitize). */
#ifndef RMQ_MACHINE_H
#define RMQ_MACHINE_H

#if defined(__x86_64__) && !defined(RMQ_PORTABLE)
#define RMQ_X86 1
#else
#define RMQ_X86 0
#endif

#endif
