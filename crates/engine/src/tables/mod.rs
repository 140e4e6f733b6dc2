//! Tables on this machine and behind sockets: what `stentor-tables` leaves to its caller.
//!
//! Promise: a file that is replaced (another size, time or inode) is read whole at the next [`FileTable::refresh`], and put in
//! force at once; one that is broken leaves the version before in force, and its report says file and line. A table
//! behind a socket ([`remote::Remote`]) that does not answer in time is a temporary failure, never "not found".

pub mod files;
pub mod remote;
