//! Tests of `[webhooks.NAME]`.

use super::*;
use crate::{Kind, WebhookFormat};

const HEAD: &str = "[webhooks.a]\nurl = \"http://x/\"\n";
const SECRET: &str = "secret = \"0123456789abcdef\"\n";

#[test]
fn listmonk_needs_no_secret_and_gets_one_event_each() {
    let text = format!("{HEAD}format = \"listmonk\"\nauthorization_file = \"token\"\nsenders = [\"News.Example\"]\n");
    let hook = &config(&text).webhooks[0];
    assert_eq!((hook.format, hook.secret.as_str(), hook.batch_max), (WebhookFormat::Listmonk, "", 1));
    assert_eq!((&*hook.events, &*hook.senders), (&Kind::OF_LISTMONK[..], &["news.example".to_owned()][..]));
    assert!(hook.authorization_file.as_deref().is_some_and(|path| path.ends_with("token")));
    let wrong = findings(&format!("{HEAD}format = \"listmonk\"\nbatch_max = 7\n"));
    assert!(wrong.contains("`batch_max` does not apply to format \"listmonk\""), "{wrong}");
    let wrong = findings(&format!("{HEAD}format = \"listmonk\"\nevents = [\"delivered\"]\n"));
    assert!(wrong.contains("\"delivered\" is not a valid event; valid events: bounced, expired, report"), "{wrong}");
}

#[test]
fn events_need_a_secret_and_reports_are_off_by_default() {
    assert!(findings(HEAD).contains("`secret`"), "{}", findings(HEAD));
    let hook = &config(&format!("{HEAD}{SECRET}")).webhooks[0];
    assert_eq!((hook.format, hook.batch_max, hook.events.contains(&Kind::Report)), (WebhookFormat::Events, 100, false));
    let wrong = findings(&format!("{HEAD}{SECRET}senders = [\"a b\"]\n"));
    assert!(wrong.contains("\"a b\" is not a valid domain: "), "{wrong}");
}
