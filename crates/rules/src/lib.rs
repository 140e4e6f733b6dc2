//! Rules and routes: decisions about mail other than list posts, and their reasons (docs/design/rules.md).
//!
//! What it does: a [`Rulebook`] is built once from a configuration and is immutable; a reload builds a new one. From
//! the [`Facts`] about one recipient and the answers of [`Tables`] it makes a [`Decision`]: the outcome, further
//! actions on the message, and the next hop, each with its reason.
//!
//! What it promises: no I/O and no clock; time linear in the number of rules and in the text that regular expressions
//! search; the same facts and answers give the same decision. The explanation ([`Step`]s) is written by the
//! evaluation itself, never by a second one, and costs nothing unless requested. Only a rule with `relay` permits
//! relaying.
//!
//! How it fails: malformed text is an error that quotes it, before it is used. A table that does not answer defers
//! the recipient.

mod access_db;
mod action;
mod address;
mod addresses;
mod book;
mod client_match;
mod conditions;
mod content;
mod decide;
mod decision;
mod dry_run;
mod explain;
mod facts;
mod field_edit;
mod hop;
mod lookup;
mod names;
mod next_hop;
mod refusal;
mod results;
mod rewrite;
mod routes;
mod rule;
mod sendmail;
mod service;
mod stands_for;
mod stranger_conditions;
mod strangers;
mod transport;
mod usable;
mod waiting;
mod wishes;
mod words;

pub use action::{ActionError, FinalAction, RuleAction};
pub use address::{AddressPattern, Key, PatternError};
pub use addresses::{Addresses, GenericTables, Masquerade, Rewriting};
pub use book::{Book, RelayDomains, Rulebook};
pub use client_match::ClientMatch;
pub use conditions::Conditions;
pub use content::{
    AuthFieldResults, AuthTest, ContentConditionError, ContentConditions, ContentScanner, Hits, Matcher, Pattern, Test,
    claims, unlikely,
};
pub use decision::{
    AUTHENTICATED, CERTIFIED, COPIED, Decision, DecisionReason, Marks, OpenRule, Outcome, PendingLookup, REDIRECTED,
    RuleEntry,
};
pub use dry_run::DryRunAction;
pub use explain::{Step, UnknownFact};
pub use facts::{Facts, Field, LookupResult, SessionFacts, Subject, TableEntry, TableId, Tables, TlsFacts};
pub use field_edit::{FieldEdit, FieldEditError};
pub use hop::{HopError, NextHop, name_of};
pub use lookup::{LookupBuffers, TableKey, find, keys};
pub use names::{ClientPattern, NamePattern, UNKNOWN};
pub use results::RuleResults;
pub use rewrite::Part;
pub use routes::{HopSource, HopSourceOrder, RouteEntry, Routes, Unroutable};
pub use rule::{Dialect, Rule, RuleEffect, RuleId, TableName};
pub use service::{PolicyServiceCheck, ServiceStage, SessionQuestion, WholeMessage, policy_request};
pub use stands_for::{ADDRESSES_MAX, AddressQuery};
pub use stentor_reputation::ClientName;
pub use stentor_tables::{IncludeError, Included};
pub use stranger_conditions::StrangerConditions;
pub use usable::ValueUses;
pub use waiting::{ContentResults, MessageFacts, ServiceAnswers, WaitingRules};
pub use wishes::{ActionRemark, RemarkRecipients, Wishes, decided_by};
