//! Answers that only HTTP has, and a refusal in the API's form.

use serde::Serialize;
use stentor_control::ErrorCode;
use stentor_push::webhooks::WebhookView;

/// The reply to a verb without counts.
#[derive(Default, Serialize)]
pub struct Done {
    /// The result in words.
    pub text: String,
    /// Number of affected recipients, if that applies.
    pub count: Option<u64>,
}

#[derive(Serialize)]
pub struct WebhookList {
    /// The endpoints.
    pub webhooks: Vec<WebhookView>,
}

/// An accepted message.
#[derive(Default, Serialize)]
pub struct InjectionResult {
    /// The server's reply in words.
    pub text: String,
    /// Its messages: one for each list and alias, and one for the other recipients.
    pub messages: Vec<InjectedMessage>,
    /// Refused recipients, with `partial`.
    pub refused: Vec<RefusedRcptView>,
}

#[derive(Default, Serialize)]
pub struct InjectedMessage {
    /// Queue id.
    pub id: String,
    /// Number of its recipients.
    pub recipients: u64,
}

#[derive(Default, Serialize)]
pub struct RefusedRcptView {
    /// The refused address.
    pub address: String,
    /// The reply, as over SMTP.
    pub reply: String,
}

#[derive(Serialize)]
pub struct ErrorBody {
    /// What is wrong.
    pub error: ErrorView,
}

#[derive(Serialize)]
pub struct ErrorView {
    /// As on the control socket.
    pub code: ErrorCode,
    /// The reason in words.
    pub text: String,
    /// Refused recipients of a submitted message.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedRcptView>,
}

impl ErrorBody {
    pub fn new(code: ErrorCode, text: impl Into<String>, refused: Vec<RefusedRcptView>) -> ErrorBody {
        ErrorBody { error: ErrorView { code, text: text.into(), refused } }
    }
}
