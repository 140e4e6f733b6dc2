//! The control socket: how operators' commands reach the running server, and how its answers are displayed.
//!
//! Promise: nothing here reads the store; the server answers from memory. Requests and lines have a size limit,
//! connections a number limit, each step a timeout, so that no client of the socket can delay the server. Access is
//! decided by the file's mode (0600) and checked against the peer's user id.
//!
//! Bytes, verbs and reserved names are in `docs/operate/control-protocol.md`; [`protocol`] is pure.

pub mod address_view;
pub mod ages;
pub mod causes;
mod changes;
pub mod client;
pub mod dkim_view;
pub mod doctor;
pub mod foreign;
pub mod format;
pub mod list_view;
pub mod observe;
pub mod post_view;
pub mod posts;
pub mod problem;
pub mod protocol;
pub mod quarantine_view;
pub mod queue_only_view;
pub mod recipient_view;
pub mod render;
pub mod render_ages;
pub mod render_dkim;
mod render_lists;
mod render_post;
mod render_quarantine;
mod render_suppressions;
mod render_tls;
mod render_waiting;
pub mod reply;
pub mod selection;
pub mod server;
pub mod site_view;
pub mod snapshot;
mod standing_view;
pub mod suppression_view;
#[cfg(test)]
mod tests;
pub mod users_view;
mod verify_view;
pub mod view;
#[cfg(test)]
mod view_tests;
mod wire;

/// The protocol's version, sent in every request and reply. Fields may be added within a version; readers skip unknown
/// ones.
pub const VERSION: u64 = 1;

pub use address_view::{AddressView, HostsHistoryView, MailboxHistoryView};
pub use ages::{Ages, AgesRow};
pub use causes::CauseRow;
pub use changes::ChangeScope;
pub use client::{Client, ControlError};
pub use dkim_view::{DkimRecordView, DkimRecords, DkimRequest, DkimRotateOptions};
pub use list_view::{
    DeliverySetting, DepartureView, ListChange, ListName, ListOverview, ListTable, MemberOptions, MemberRemoval,
    MemberTable, MemberView, NewList, NewMember, NewMembers, PersonOptions, PersonView, RosterRequest,
};
pub use observe::{
    ComplaintView, HostRow, Hosts, HostsOptions, HostsQuery, Mailqq, MailqqOptions, MailqqRow, MailqqSort, Observe,
    PostReports, ReportOptions, TrafficOptions,
};
pub use post_view::{PostCounts, PostListView, PostOptions, PostRcptView, PostState, PostView};
pub use posts::{FailedRcptView, PostReport, Timeline, WaitingAt};
pub use problem::{ErrorCode, Problem};
pub use protocol::{Part, Request, Subject};
pub use quarantine_view::{AttachmentView, QuarantineList, QuarantineOptions, QuarantinedMessage, QuarantinedView};
pub use queue_only_view::QueueOnlyView;
pub use recipient_view::{RecipientState, RecipientView};
pub use reply::{
    ControlReply, EnvelopeView, Fates, ListRow, MessageView, QueueSummary, SiteRow, Status, StuckReport, StuckRow,
};
pub use selection::{ActionResult, BounceTerm, Selection, Verb};
pub use server::{Control, ControlServer, Requester};
pub use site_view::{CertificateView, HostView, PathView, SiteView, TlsView, WeakTlsView, tls_words};
pub use snapshot::{Snapshot, WatchOptions};
pub use standing_view::StandingBounceView;
pub use suppression_view::{
    NewSuppression, NewSuppressions, SuppressionList, SuppressionName, SuppressionOptions, SuppressionRemoval,
    SuppressionRequest, SuppressionView,
};
pub use verify_view::{VerifyRow, VerifyView};
pub use view::{RowKind, Sort, View};
