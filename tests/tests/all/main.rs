//! Integration tests: the real binary over real sockets, one module per feature.

mod smtp_in;
