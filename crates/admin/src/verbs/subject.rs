//! Selection by subject: reads the headers of the messages that the other selectors found, without the queue's lock.
//!
//! Promise: a message is found if its decoded subject contains the text, ignoring case. Messages that left the queue
//! while headers were read are dropped, even if another message has the number since.

use std::sync::Arc;

use stentor_core::Core;
use stentor_core::hub::Hub;
use stentor_queue::ids::MessageId;

use super::walk::SelectedRecipients;
use crate::report;

/// Keeps messages whose subject contains the text.
pub(super) async fn with_subject(
    core: &Arc<Core>,
    text: &str,
    found: Vec<SelectedRecipients>,
) -> Vec<SelectedRecipients> {
    let wanted = text.to_lowercase();
    let ids: Vec<MessageId> = found.iter().map(|found| found.id).collect();
    let headings = report::headings(core, &ids).await;
    let has_it = headings.iter().map(|heading| report::is_about(heading.as_ref(), &wanted));
    found.into_iter().zip(has_it).filter_map(|(found, has_it)| has_it.then_some(found)).collect()
}

/// Drops recipients that left the queue. Call it under the lock that uses the result.
pub(super) fn still_queued(hub: &Hub, found: Vec<SelectedRecipients>) -> Vec<SelectedRecipients> {
    let there = |mut found: SelectedRecipients| {
        let message = hub.store.message(found.no).filter(|message| message.id() == found.id)?;
        found.ids = found.ids.intersection(message.pending());
        (!found.ids.is_empty()).then_some(found)
    };
    found.into_iter().filter_map(there).collect()
}
