//! The store from outside: what is appended is read, whatever happens to the files.

mod codec;
mod damage;
mod kit;
mod limits;
mod store;
