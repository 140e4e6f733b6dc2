//! The program: privileges, the folder, messages and SMTP on standard input, and requests to a running server.

pub mod folder;
pub mod message;
pub mod privileges;
pub mod queue;
pub mod smtp;
pub mod user;
