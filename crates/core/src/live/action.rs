//! The operator's action in progress: there is one at a time.
//!
//! Promise: readers see how many recipients are done; nothing is kept after the action ends.

use parking_lot::Mutex;
use stentor_queue::ids::Ms;

/// An action in progress.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ActionNow {
    pub verb: &'static str,
    /// Who runs it, as in the audit record.
    pub who: String,
    pub since: Ms,
    pub recipients: u64,
}

/// The action in progress, if any; see the module's head.
#[derive(Default)]
pub struct CurrentAction(Mutex<Option<ActionNow>>);

impl CurrentAction {
    /// Starts an action; dropping the guard ends it.
    pub fn begin(&self, action: ActionNow) -> ActionGuard<'_> {
        *self.0.lock() = Some(action);
        ActionGuard(self)
    }

    pub fn now(&self) -> Option<ActionNow> {
        self.0.lock().clone()
    }
}

/// Ends the action when it is dropped.
pub struct ActionGuard<'a>(&'a CurrentAction);

impl ActionGuard<'_> {
    /// Sets the number of recipients done.
    pub fn set_recipients(&self, recipients: u64) {
        if let Some(action) = self.0.0.lock().as_mut() {
            action.recipients = recipients;
        }
    }
}

impl Drop for ActionGuard<'_> {
    fn drop(&mut self) {
        *self.0.0.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_is_seen_until_it_ends() {
        let action = CurrentAction::default();
        assert_eq!(action.now(), None);
        let now = ActionNow { verb: "remove", who: "uid=0".to_owned(), since: 5, recipients: 0 };
        let under_way = action.begin(now.clone());
        under_way.set_recipients(1_000);
        assert_eq!(action.now(), Some(ActionNow { recipients: 1_000, ..now }));
        drop(under_way);
        assert_eq!(action.now(), None);
    }
}
