//! Decides who may send mail where: local domains, lists, aliases and relaying.
//!
//! What it does: a [`Policy`] is built once from a [`PolicyInput`] and is immutable; a reload builds a new one.
//! [`Policy::decide`] returns the class of a recipient's address by lookups alone, without I/O and without a clock.
//! Rules and routes are in `stentor-rules`, which uses this crate.
//!
//! What it promises: a client outside the client networks never gets [`AddressClass::Relay`]; an address in a local
//! domain is a list, an alias, a bounce address or refused in the session (no backscatter); aliases are expanded when
//! the policy is built, so that a loop is a configuration error and never a run-time one. Every answer has a
//! [`PolicyReason`].
//!
//! [`Recipients`] collects the recipients of one transaction and makes envelopes from them.
//!
//! The crate also determines the class of mail: by its injector ([`InjectorClasses`]) and by its sender's rate
//! ([`SenderRates`], the only state here).
//!
//! How it fails: [`Policy::new`] reports all errors at once, each naming the list or alias that caused it.

mod class;
mod client;
mod envelope_groups;
mod error;
mod expand;
mod guesses;
mod names;
mod rate;
mod recipients;
mod route;
mod rules;
mod site;
#[cfg(test)]
mod tests;
mod ways;

pub use class::InjectorClasses;
pub use client::{UNTRUSTED_CLIENT, counted_as};
pub use envelope_groups::{EnvelopeKind, Group, RecipientPath};
pub use error::{PolicyError, Subject};
pub use expand::{ALIAS_DEPTH_MAX, ALIAS_TARGETS_MAX, Expansion, LocalTarget, TARGETS_TOTAL_MAX, is_same_local};
pub use guesses::{Guesses, Slowness};
pub use names::{NAMED_MAX, Names};
pub use rate::{RateLimits, SENDERS_MAX, SenderRates, stem};
pub use recipients::{CommandRcpt, Recipients};
pub use route::{DELIVER_SOCKETS, HostSpec, RouteHost, RouteHostError};
pub use rules::{AddressClass, AddressDecision, AliasInput, ListInput, Policy, PolicyInput, PolicyReason};
pub use site::{PROFILES, SiteRule, SiteRules};
pub use ways::RelayReasons;
