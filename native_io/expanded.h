/* The answers of what decompresses in one go. */
#ifndef RMQ_EXPANDED_H
#define RMQ_EXPANDED_H

enum {
    RMQ_EXPANDED,  /* all of it */
    RMQ_NO_ROOM,   /* it decompresses to more bytes than there is room for, as far as was looked */
    RMQ_NOT_KNOWN, /* it is not what it should be, or of a kind that is not known here */
};

#endif
