//! DKIM keys that the server makes (`rotate_days`): key files, their records in DNS, and their replacement.
//!
//! Promise: each change is durable before it takes effect, in the order that [`stentor_dkim::rotation`] gives. So after
//! a crash at any point the keys in use are there, and no key signs whose record was not seen. Deliveries never wait:
//! they read the keys in use from [`stentor_core::rotating_keys`].
//!
//! | what | where |
//! |---|---|
//! | private keys | `DATA_DIR/dkim/DOMAIN.SELECTOR.pem`, mode 0600; never replaced |
//! | states of all key pairs | the registry ([`store`]) |
//! | records in DNS | asked at the zone's name servers ([`lookup`]) |
//!
//! Failures: at the start, keys in use that cannot be read, or a damaged state, are an error: mail would leave
//! unsigned. Later, what cannot be read, made or stored changes nothing: the keys in use stay, health says why, and it
//! is tried again.

mod domain;
mod health;
mod keeper;
mod key_files;
mod lookup;
mod publish;
mod schedule;
mod store;
#[cfg(test)]
mod tests;

pub use domain::RotationError;
pub use keeper::RotationKeeper;
