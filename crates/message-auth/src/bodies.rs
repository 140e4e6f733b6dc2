//! The body of a message as its signatures need it.

use stentor_dkim::{BodyHash, CanonicalForm, HashedBody};

/// Hashes of a body in the forms that are needed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HashedBodies {
    pub simple: Option<HashedBody>,
    pub relaxed: Option<HashedBody>,
}

impl HashedBodies {
    /// The body in a form; all forms in signatures have been hashed.
    pub(crate) fn of(&self, form: CanonicalForm) -> HashedBody {
        let body = match form {
            CanonicalForm::Simple => self.simple,
            CanonicalForm::Relaxed => self.relaxed,
        };
        body.unwrap_or_else(|| BodyHash::new(form).finish_counted())
    }
}
