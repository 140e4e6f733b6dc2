//! Incoming SMTP: listeners and client sessions.
//!
//! Promise: a session sends 250 after the data only once its ticket has resolved. A storm never closes the port: a
//! connection over the limits is accepted and gets 421, and running out of descriptors pauses accepting. Memory per
//! session is bounded by one piece of body. Push-back happens before RCPT: at connect or MAIL.

mod content;
mod copy_request;
mod interning;
mod judge;
mod listener;
mod open_sessions;
mod proxied;
mod redirect;
mod rewrite;
mod session;
mod socket;
mod strangers;
mod transaction;
mod turns;

pub use content::{ContentEnvelope, Members, check as check_content, check_post, class};
pub use copy_request::{RequestInHeader, RequestedMail};
pub use judge::{ClientProof, Decider, Speaker, Stranger, calls_ahead};
pub use listener::{Listeners, bind};
pub use redirect::{redirected, senders};
pub use rewrite::{canonical, header};
pub use stentor_reputation::ClientName;
pub use strangers::StrangerThreads;
pub use transaction::{Origin, Transaction};
