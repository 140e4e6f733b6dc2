//! Mailing lists: their settings, subscribers files, who may post, the header fields of a list, and commands by mail.
//!
//! [`List`] holds one list's checked settings and the header fields that every copy of a post carries; [`List::admit`]
//! decides on a post; [`subscribers`] reads files of any size as a stream.
//!
//! Promise: no text in a setting or a file can break out of a header field. A bad line in a subscribers file costs only
//! that line and is reported with its number. A post that has been through the list before is refused, and so is an
//! automatic reply.
//!
//! Failure: settings give [`ListError`]s, all at once; a post, the [`Reply`](stentor_mail::reply::Reply) for the
//! client; a file, the I/O error of its reader, and for everything else in it a [`subscribers::SubscribersSummary`].

mod author;
pub mod commands;
mod fields;
mod list;
mod permalink;
mod posting;
pub mod replies;
pub mod subscribers;

pub use author::{FromRewriting, PostAuthor};
pub use fields::{delivered_to_field, is_archive_url, is_list_id};
pub use list::{DESCRIPTION_CHARS_MAX, List, ListError, ListSettings, PostFields, PostingPolicy, own_fields};
pub use permalink::permalink_in;
pub use posting::{check_delivered_to, check_received, check_sender};
