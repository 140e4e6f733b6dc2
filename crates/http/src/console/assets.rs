//! Styles, scripts and the icon, in the binary.

use std::hash::BuildHasher;
use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use foldhash::fast::FixedState;

struct Asset {
    name: &'static str,
    kind: &'static str,
    text: &'static str,
}

const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

const ASSETS: [Asset; 6] = [
    Asset { name: "console.css", kind: CSS, text: include_str!("../../assets/console.css") },
    Asset { name: "uplot.css", kind: CSS, text: include_str!("../../assets/uplot/uPlot.min.css") },
    Asset { name: "uplot.js", kind: SCRIPT, text: include_str!("../../assets/uplot/uPlot.iife.min.js") },
    Asset { name: "console.js", kind: SCRIPT, text: include_str!("../../assets/console.js") },
    Asset { name: "charts.js", kind: SCRIPT, text: include_str!("../../assets/charts.js") },
    Asset { name: "icon.svg", kind: "image/svg+xml", text: include_str!("../../assets/icon.svg") },
];

/// Distinguishes this build's files from those of others.
static VERSION: LazyLock<String> =
    LazyLock::new(|| format!("{:x}", FixedState::default().hash_one(ASSETS.each_ref().map(|asset| asset.text))));

/// A file's URL; it changes with the file, so that browsers may cache it for ever.
pub fn url(name: &str) -> String {
    format!("/assets/{name}?v={}", *VERSION)
}

pub async fn serve(Path(name): Path<String>) -> Response {
    let Some(asset) = ASSETS.iter().find(|asset| asset.name == name) else {
        return (StatusCode::NOT_FOUND, "no such file\n").into_response();
    };
    let headers = [(header::CONTENT_TYPE, asset.kind), (header::CACHE_CONTROL, "public, max-age=31536000, immutable")];
    (headers, asset.text).into_response()
}
