//! The journal as its owner sees it, on a disk that fails and forgets.

mod crash;
mod faults;
mod model;
mod reading;
mod real;
mod rest;
mod room;
mod space;
mod verifying;
