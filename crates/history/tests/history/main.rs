//! The store from outside: appended records are read back, whatever happens to the files.

mod codec;
mod damage;
mod kit;
mod limits;
mod store;
