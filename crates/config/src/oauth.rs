//! `oauth` of a smart host: how access tokens are obtained (RFC 6749 section 4.4 and 6).

use stentor_http_client::Url;
use stentor_oauth::OauthGrant;

use super::raw::Section;

pub(super) fn read(section: &Section<'_>) -> Option<OauthGrant> {
    let context = section.context;
    let url = section.required("token_url", "https://oauth2.googleapis.com/token");
    let token_url = url.and_then(|text| match Url::parse(text.value) {
        Ok(url) if url.is_tls => Some(url),
        Ok(_) => {
            context.error(text.span, format!("`token_url`{} is not https", section.place()));
            None
        }
        Err(why) => {
            context.error(text.span, format!("`token_url`{}: {why}", section.place()));
            None
        }
    });
    // Character sets of RFC 6749 appendix A.1 and A.4.
    let printable = |key: &'static str, text: Option<super::diagnose::Spot<&str>>| {
        let text = text?;
        let is_good = !text.value.is_empty() && text.value.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        if !is_good {
            context.error(text.span, format!("`{key}`{} must be printable ASCII", section.place()));
        }
        is_good.then(|| text.value.to_owned())
    };
    let client_id = printable("client_id", section.required("client_id", "1234.apps.googleusercontent.com"));
    let scope = printable("scope", section.text("scope"));
    let path = |key| section.text(key).map(|text| context.path(text.value));
    let (client_secret_file, refresh_token_file) = (path("client_secret_file"), path("refresh_token_file"));
    if client_secret_file.is_none() && refresh_token_file.is_none() {
        let message = format!(
            "`refresh_token_file` is missing{}; set it, or set `client_secret_file` to use the client_credentials \
             grant",
            section.place()
        );
        context.error(section.span.clone(), message);
    }
    Some(OauthGrant { token_url: token_url?, client_id: client_id?, client_secret_file, refresh_token_file, scope })
}
