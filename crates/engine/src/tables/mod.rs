//! Tables behind sockets: what `stentor-tables` and `stentor-tablefiles` leave to their caller.
//!
//! Promise: a table behind a socket ([`remote::Remote`]) that does not answer in time is a temporary failure, never "not found".

pub mod remote;
