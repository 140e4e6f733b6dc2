//! Puts a recipient's merge values into its copy ([`stentor_mime::recode`], [`stentor_copies::MergeTable`]).
//!
//! Promise: the values are those that were accepted with the message. The merged copy takes the place of the stored
//! content for this transaction, before anything else is done to it: header rewriting, conversion, signatures.
//!
//! Failure: values that cannot be read defer the copy, as other content does. A message that has grown beyond what is
//! merged in memory is returned.

use std::io;
use std::sync::Arc;

use stentor_copies::MergeTable;
use stentor_core::Core;
use stentor_core::assignment::Assignment;
use stentor_mail::reply::Enhanced;
use stentor_mime::recode::Converter;

use super::body::ContentError;

/// Largest message that is merged; the submission has a lower limit, but filters may add to it.
const MESSAGE_BYTES_MAX: u64 = 1024 * 1024;
const NOT_MERGEABLE: Enhanced = Enhanced::new(5, 6, 0);
/// The value that every recipient has.
const ADDRESS: &str = "address";

/// Merges a copy. Repeated it does nothing.
///
/// # Errors
/// The content or the values cannot be read, or the copy cannot be made.
pub fn render(core: &Core, assignment: &mut Assignment) -> Result<(), ContentError> {
    if assignment.merge_bytes == 0 || assignment.is_merged {
        return Ok(());
    }
    let len = assignment.content_len();
    if len > MESSAGE_BYTES_MAX {
        return Err(ContentError::Unfit(NOT_MERGEABLE, format!("a message of {len} octets cannot be merged")));
    }
    if assignment.len() != 1 {
        // The scheduler gives such messages out by recipient.
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a merged copy has one recipient").into());
    }
    let read = |at: u64, mut octets: &mut [u8]| {
        let mut at = at;
        while !octets.is_empty() {
            match core.reader.read_at(assignment.content.0, at, octets)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => {
                    at += read as u64;
                    octets = &mut octets[read..];
                }
            }
        }
        Ok(())
    };
    let mut message = vec![0; len as usize];
    read(0, &mut message)?;
    let address = assignment.address(0).to_owned();
    let mut values =
        MergeTable::open(|at, octets: &mut [u8]| read(len + at, octets), assignment.merge_bytes)?.values(&address)?;
    values.entry(ADDRESS.to_owned()).or_insert(address);
    let (mut converter, mut merged) = (Converter::merging(values), Vec::with_capacity(message.len() + 256));
    let result = converter.push(&message, &mut merged).and_then(|()| converter.finish(&mut merged));
    result.map_err(|error| ContentError::Unfit(NOT_MERGEABLE, format!("the message cannot be merged: {error}")))?;
    // The recipient's address was rewritten after its values were stored.
    if let Some(name) = converter.unmerged_names().next() {
        return Err(ContentError::Unfit(
            NOT_MERGEABLE,
            format!("there is no value for {{{{{name}}}}} for this address"),
        ));
    }
    assignment.size = assignment.size - len + merged.len() as u64;
    assignment.body = Some(Arc::new(merged));
    assignment.is_merged = true;
    Ok(())
}
