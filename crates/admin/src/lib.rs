//! Operators' queries and actions on the running server: the verbs of the control socket and of the HTTP API.
//!
//! Promise: answers come from memory, in slices, so that the queue's lock is never held for long; an action is
//! journaled with who and when before it is answered.

pub mod advice;
mod ages;
pub mod causes;
pub mod depth;
mod dkim;
pub mod doctor;
pub mod find;
pub mod health;
mod holds;
mod lists;
mod made_lists;
pub mod operator;
pub mod own_tlsa;
pub mod past_decisions;
pub mod posts;
pub mod published;
pub mod quarantine;
pub mod report;
pub mod row_query;
pub mod site;
mod suggestions;
pub mod suppression_forms;
mod tls;
mod top;
pub mod user_list;
mod users;
pub mod verbs;
mod verify;
pub mod views;
pub mod waiting;
pub mod watch;
