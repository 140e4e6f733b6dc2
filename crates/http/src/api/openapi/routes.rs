//! The routes: their summaries, and the types of requests and answers.

use stentor_control::view::Subject;

/// Begins every path.
pub(super) const PREFIX: &str = "/api/v1";

/// Fields of a type.
#[derive(Clone, Copy)]
pub(super) struct Fields {
    /// The type's name.
    pub of: &'static str,
    pub choice: Choice,
}

#[derive(Clone, Copy)]
pub(super) enum Choice {
    Except(&'static [&'static str]),
    Only(&'static [&'static str]),
}

/// The input of a route.
pub(super) enum RouteInput {
    Nothing,
    /// Query parameters.
    Query(&'static [Fields]),
    /// A command's view as a query, and further parameters.
    View(Subject, &'static [Fields]),
    /// A JSON body.
    Body(Fields),
    /// CSV, with these query parameters.
    Csv(&'static [Fields]),
    /// A message.
    Mail,
}

use RouteInput::{Body, Csv, Mail, Nothing, Query, View};

pub(super) struct Route {
    pub method: &'static str,
    /// Under [`PREFIX`].
    pub path: &'static str,
    pub summary: &'static str,
    pub takes: RouteInput,
    /// The schema of the answer; empty if another page documents it (docs/operate/statistics.md, `OpenAPI` itself).
    pub gives: &'static str,
}

const fn get(path: &'static str, takes: RouteInput, gives: &'static str, summary: &'static str) -> Route {
    Route { method: "get", path, summary, takes, gives }
}

const fn post(path: &'static str, takes: RouteInput, gives: &'static str, summary: &'static str) -> Route {
    Route { method: "post", path, summary, takes, gives }
}

const fn all(of: &'static str) -> Fields {
    except(of, &[])
}

const fn except(of: &'static str, names: &'static [&'static str]) -> Fields {
    Fields { of, choice: Choice::Except(names) }
}

const fn only(of: &'static str, names: &'static [&'static str]) -> Fields {
    Fields { of, choice: Choice::Only(names) }
}

/// Arguments of verbs on mail, except `bounce`, which can be standing.
const ACTION: Fields = except("Arguments", &["for_s", "end"]);
const SELECTORS: Fields = except("Arguments", &["dry_run", "reason", "for_s", "end"]);
const OF_QUARANTINE: Fields = except("Arguments", &["site", "subject", "for_s", "end"]);
const REASON: Fields = only("Arguments", &["dry_run", "reason"]);
const KEPT: &[Fields] = &[
    except("Arguments", &["site", "all", "as_of", "dry_run", "reason", "for_s", "end"]),
    only("QuarantineOptions", &["rows_max", "after"]),
];

pub(super) const ROUTES: &[Route] = &[
    get("/status", Nothing, "Status", "The server at a glance."),
    get("/queue", View(Subject::Queue, &[]), "Queue", "Queue totals, and sites by number of recipients."),
    get(
        "/queue/ages",
        View(Subject::Ages, &[]),
        "Ages",
        "Pending recipients by site and age, as `mailqq` with `by=age`.",
    ),
    get("/queue/stuck", View(Subject::Stuck, &[]), "Stuck", "Recipients and sites with the most waiting messages."),
    get(
        "/queue/export",
        Query(&[SELECTORS]),
        "Envelope",
        "Messages with envelope and pending recipients, one JSON object per line; the last line has `end` or `error`.",
    ),
    get("/messages/{id}", Query(&[all("ShowArguments")]), "Message", "One message and its pending recipients."),
    post("/messages", Mail, "Injected", "Submits a message. 201 means that it is durable."),
    get("/addresses/{address}", Nothing, "Address", "Waiting mail, history and suspensions of one address."),
    get("/sites/{name}", Query(&[all("SiteArguments")]), "Site", "One site: its waiting mail, and why it waits."),
    get("/openapi.json", Nothing, "", "This document."),
    get(
        "/mailqq",
        Query(&[all("MailqqOptions")]),
        "Mailqq",
        "Messages by their pending recipients, as `stentor mailqq` shows them.",
    ),
    get(
        "/hosts",
        View(Subject::Hosts, &[all("HostsQuery")]),
        "Hosts",
        "Sites and their hosts with history, clock, reason and last replies, as `stentor hosts` shows them.",
    ),
    get("/posts", View(Subject::Report, &[]), "Posts", "Delivery reports of the newest posts."),
    get("/posts/{id}", Nothing, "Posts", "The delivery report of one post."),
    get(
        "/posts/{id}/recipients",
        Query(&[except("PostArguments", &["id"])]),
        "Post",
        "How many recipients have a kept post, and which ones wait for it or missed it, and why.",
    ),
    get(
        "/mailstat",
        Query(&[all("RowsQuery")]),
        "",
        "Statistics from the history, as `stentor mailstat` prints them, over at most a week; hours and days are in \
         UTC.",
    ),
    get("/trace/{what}", Nothing, "", "Events of a queue id, Message-ID or recipient from the history."),
    get(
        "/dmarc",
        Query(&[all("DmarcQuery")]),
        "Dmarc",
        "Sums of the DMARC reports that others sent about our domains, as `stentor dmarc --json` prints them.",
    ),
    get(
        "/suppressions",
        Query(&[all("SuppressionsQuery")]),
        "Suppressions",
        "Addresses and domains that get no mail, in the order of subject and scope.",
    ),
    get(
        "/suppressions/{subject}",
        Nothing,
        "Suppressions",
        "Entries of an address and its domain, or of an `@domain`.",
    ),
    get("/suppressions/export", Nothing, "text/csv", "All entries as CSV; the first line names the columns."),
    post(
        "/suppressions/import",
        Csv(&[all("ImportQuery")]),
        "Imported",
        "Adds entries from CSV whose first line names the columns; lines with errors are skipped and reported.",
    ),
    post("/suppress", Body(all("NewSuppressions")), "Done", "Adds suppressions, all of them or none."),
    post("/unsuppress", Body(all("SuppressionRemoval")), "Done", "Removes suppressions."),
    get("/lists", Nothing, "Lists", "All lists, with the number of their members."),
    post("/lists", Body(all("NewList")), "Done", "Makes a list whose members are in the registry."),
    get("/lists/{name}", Nothing, "Lists", "One list, with the keys of one that was made."),
    post("/lists/{name}/set", Body(except("ListChange", &["name"])), "Done", "Changes keys of a list that was made."),
    post("/lists/{name}/delete", Nothing, "Done", "Deletes a list that was made, with its members."),
    get(
        "/lists/{list}/members",
        Query(&[except("MemberOptions", &["list"])]),
        "Members",
        "Members of a list in the order of their addresses. Needs a login.",
    ),
    post(
        "/lists/{name}/members/add",
        Body(except("NewMembers", &["list"])),
        "Done",
        "Adds members; those who left or complained only with `again`.",
    ),
    post(
        "/lists/{name}/members/remove",
        Body(except("MemberRemoval", &["list"])),
        "Done",
        "Removes members; waiting posts are not sent to them.",
    ),
    post(
        "/lists/{name}/members/set",
        Body(except("DeliverySetting", &["list"])),
        "Done",
        "Changes which posts members get.",
    ),
    get(
        "/members/{address}",
        Nothing,
        "Person",
        "A person's lists, how the person joined and left them, and suppressions. Needs a login.",
    ),
    get("/webhooks", Nothing, "Webhooks", "State of each webhook endpoint."),
    get(
        "/users",
        Nothing,
        "Users",
        "Users with their submissions of the last hour and day, and their limits. Needs a login.",
    ),
    post(
        "/suspend",
        Body(all("SuspendArguments")),
        "Done",
        "Suspends delivery for a list, a sender, a site, or one subscriber of a list.",
    ),
    post("/resume", Body(except("SuspendArguments", &["for_s", "dry_run"])), "Done", "Ends a suspension."),
    post("/flush", Body(all("FlushArguments")), "Done", "Tries waiting mail now: all of it, or one site's."),
    get(
        "/quarantine",
        Query(KEPT),
        "Quarantine",
        "Messages in the quarantine, oldest first, with their header fields.",
    ),
    get(
        "/quarantine/{id}",
        Nothing,
        "Quarantined",
        "A quarantined message, decoded: header, text, names of attachments. Needs a login.",
    ),
    post(
        "/quarantine/release",
        Body(OF_QUARANTINE),
        "Counted",
        "Releases quarantined messages: they are delivered as if just accepted, without another check of the rules.",
    ),
    post("/quarantine/delete", Body(OF_QUARANTINE), "Counted", "Deletes quarantined messages without a bounce."),
    post(
        "/quarantine/copy",
        Body(all("CopyArguments")),
        "Counted",
        "Sends a copy of a quarantined message to another address; the message stays in the quarantine.",
    ),
    post(
        "/queue-only",
        Body(all("QueueOnlyArguments")),
        "Done",
        "Starts or ends queue-only mode: mail is accepted but not tried.",
    ),
    post(
        "/queue/run",
        Body(all("QueueRunArguments")),
        "Counted",
        "Tries all mail in the queue once, including queue-only mail.",
    ),
    post("/hold", Body(ACTION), "Counted", "Holds mail until it is released."),
    post("/release", Body(ACTION), "Counted", "Ends a hold."),
    post("/remove", Body(ACTION), "Counted", "Removes recipients from the queue without a bounce."),
    post("/bounce", Body(all("Arguments")), "Counted", "Bounces recipients now, or for a limited time."),
    post("/requeue", Body(ACTION), "Counted", "Requeues recipients: they are tried now, as if just accepted."),
    post("/reload", Nothing, "Done", "Reloads the configuration."),
    post("/posts/{id}/pause", Body(REASON), "Counted", "Holds undelivered copies of a post."),
    post("/posts/{id}/resume", Body(REASON), "Counted", "Resumes a paused post."),
    post(
        "/posts/{id}/resend",
        Body(REASON),
        "Counted",
        "Sends a kept post to those that missed it: bounced, expired, or removed by an operator.",
    ),
    post("/posts/{id}/cancel", Body(REASON), "Counted", "Removes undelivered copies of a post without a bounce."),
];
