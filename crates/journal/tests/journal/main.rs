//! The journal from its owner's view, on a disk that fails and loses data.

mod crash;
mod faults;
mod model;
mod reading;
mod real;
mod rest;
mod room;
mod space;
mod verifying;
