//! The web console: the operator's commands as pages (docs/operate/console.md).
//!
//! Promise: pages are rendered here and complete without scripts; scripts update numbers, select rows and draw charts.
//! Pages use answers from memory in slices, or the history's files on the blocking pool; none loads the queue, and each
//! list is limited. Text from the network is escaped where it is displayed. Nothing is loaded from other sites, and the
//! browser is told to run only our files ([`super::guard`]).
//!
//! Reading needs no login unless the configuration says so; a change is a POST with the session's token ([`act`]).
//!
//! Failure answers: a page that says what is wrong and where to continue, with the matching status.

mod act;
mod actions;
mod assets;
mod audit;
mod badge;
mod causes;
mod configuration;
mod confirm;
mod days;
mod dmarc;
mod fields;
mod find;
mod format;
mod health;
mod history;
mod lists;
mod login;
mod message;
mod now;
mod page;
mod posts;
mod progress;
mod quarantine;
mod queue;
mod recipient;
mod sites;
mod statistics;
mod storage;
mod story;
mod stragglers;
mod table;
mod users;
mod webhooks;

use axum::Router;
use axum::routing::{get, post};

use super::Http;

pub use format::{bytes, instant, shown};
pub use history::HistoryCache;
pub use now::LiveWatch;
pub use page::missing;
pub use progress::Jobs;

pub fn router() -> Router<Http> {
    Router::new()
        .route("/", get(now::page))
        .route("/health", get(health::page))
        .route("/days", get(days::page))
        .route("/days.json", get(days::feed))
        .route("/statistics", get(statistics::page))
        .route("/statistics.svg", get(statistics::drawn))
        .route("/queue", get(queue::page))
        .route("/messages/{id}", get(message::page))
        .route("/quarantine", get(quarantine::page))
        .route("/quarantine/{id}", get(quarantine::one))
        .route("/recipient", get(recipient::page))
        .route("/sites", get(sites::all))
        .route("/site", get(sites::one))
        .route("/stragglers", get(stragglers::page))
        .route("/posts", get(posts::page))
        .route("/lists", get(lists::page))
        .route("/dmarc", get(dmarc::page))
        .route("/storage", get(storage::page))
        .route("/webhooks", get(webhooks::page))
        .route("/users", get(users::page))
        .route("/audit", get(audit::page))
        .route("/configuration", get(configuration::page))
        .route("/login", get(login::page))
        .route("/act", post(act::act))
        .route("/action", get(progress::page))
        .route("/theme", post(page::theme))
        .route("/assets/{name}", get(assets::serve))
}
