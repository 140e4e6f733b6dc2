//! Mailing lists: their settings, subscribers files, who may post, and the header fields of a list.
//!
//! What it does: [`List`] holds one list's checked settings and the header fields that every copy of a post carries;
//! [`List::admit`] decides on a post; [`subscribers`] reads files of any size as a stream.
//!
//! What it promises: nothing that a setting or a file holds can break out of a header field; a bad line in a
//! subscribers file costs that line alone and is reported with its number; a post that has been through the list before
//! is refused, and so is a reply made by a machine.
//!
//! How it fails: settings by [`ListError`]s, all at once; a post by the [`Reply`](stentor_mail::reply::Reply) that the
//! session gives; a file by the I/O error of its reader, everything else in it by a [`subscribers::Report`].

mod fields;
mod list;
mod posting;
pub mod subscribers;

pub use fields::{delivered_to_field, is_archive_url, is_list_id};
pub use list::{DESCRIPTION_CHARS_MAX, List, ListError, ListSettings, OWN_FIELDS, Post};
pub use posting::{check_delivered_to, check_received, check_sender};
