//! The state of the terminal view: turns snapshots and keys into a picture. It uses no terminal and no socket.

use std::collections::VecDeque;

use stentor_control::snapshot::SiteNow;
use stentor_control::{Mailqq, MailqqOptions, MailqqSort, Request};
use stentor_control::{Snapshot, WatchOptions};
use stentor_queue::ids::Ms;
use stentor_records::civil::Zone;
use stentor_records::rates::clock;

use super::feed::{News, UserRequest};

/// Points of history kept: one hour of seconds.
const POINTS_MAX: usize = 3_600;
/// A snapshot is missing when it is late by this many intervals and by the minimum time.
const LATE_INTERVALS: u64 = 3;
const LATE_MS_MIN: u64 = 5_000;
/// Number of messages requested.
const MESSAGES_MAX: u32 = 200;
/// Seconds of history in a first snapshot.
pub const HISTORY_S: usize = 900;
/// Seconds per column of the charts.
pub const ZOOMS: [u64; 5] = [1, 5, 15, 60, 300];

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum View {
    #[default]
    Rates,
    Sites,
    Messages,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prompt {
    List,
    Site,
}

/// Totals of one stretch of time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Point {
    pub at: Ms,
    pub interval_ms: u64,
    pub accepted: u64,
    pub delivered: u64,
    pub failed: u64,
}

/// Rates per second in one column of the charts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Column {
    pub accepted: u64,
    pub delivered: u64,
    pub failed: u64,
}

/// An action waiting for confirmation.
pub struct PendingAction {
    /// The question's number: counts for earlier questions may still arrive.
    pub question: u64,
    /// `Hold mail at mx1.example`
    pub title: String,
    pub act: Request,
    /// The affected amount from a dry run; `None` until it replies.
    pub count: Option<Result<String, String>>,
}

/// One line for the user, shown until the next key.
pub struct Notice {
    pub text: String,
    pub is_error: bool,
}

/// A text that the user opened.
pub struct TextView {
    pub title: String,
    pub text: String,
    pub scroll: u16,
}

pub struct App {
    /// The options of the snapshots.
    pub options: WatchOptions,
    pub snapshot: Option<Box<Snapshot>>,
    pub points: VecDeque<Point>,
    pub mailqq: Option<Box<Mailqq>>,
    pub view: View,
    /// The selected row in lists.
    pub selected: usize,
    pub by_latency: bool,
    pub sort: MailqqSort,
    pub zoom: usize,
    pub prompt: Option<(Prompt, String)>,
    pub opened: Option<TextView>,
    pub confirm: Option<PendingAction>,
    /// Number of questions so far.
    pub questions: u64,
    pub notice: Option<Notice>,
    pub shows_help: bool,
    /// The time zone for display.
    pub zone: Zone,
    /// Whether the terminal can show braille.
    pub is_utf8: bool,
    /// Times on a steady clock, in ms: when the last snapshot came, and now.
    received: Option<u64>,
    now: u64,
    /// Snapshots received while the picture is paused.
    pub paused: Option<Vec<Snapshot>>,
    pub lost: Option<String>,
    pub is_over: bool,
    /// The reason, if it ended with an error.
    pub error: Option<String>,
}

impl App {
    pub fn new(options: WatchOptions) -> App {
        App {
            options,
            snapshot: None,
            points: VecDeque::new(),
            mailqq: None,
            view: View::default(),
            selected: 0,
            by_latency: false,
            sort: MailqqSort::Count,
            zoom: 0,
            prompt: None,
            opened: None,
            confirm: None,
            questions: 0,
            notice: None,
            zone: Zone::utc(),
            is_utf8: true,
            received: None,
            now: 0,
            shows_help: false,
            paused: None,
            lost: None,
            is_over: false,
            error: None,
        }
    }

    pub fn news(&mut self, news: News) {
        match news {
            News::Watching(options) => {
                if options != self.options {
                    self.options = options;
                    self.points.clear();
                    (self.selected, self.paused) = (0, None);
                }
            }
            News::Refused(why) => self.notice = Some(Notice { text: why, is_error: true }),
            News::Counted(question, count) => {
                // The count may belong to a question already answered.
                if let Some(confirm) = self.confirm.as_mut().filter(|confirm| confirm.question == question) {
                    confirm.count = Some(count);
                }
            }
            News::Acted(result) => {
                let is_error = result.is_err();
                let (Ok(text) | Err(text)) = result;
                self.notice = Some(Notice { text, is_error });
            }
            News::Snapshot(snapshot) => {
                (self.lost, self.received) = (None, Some(self.now));
                match &mut self.paused {
                    Some(waiting) if waiting.len() < POINTS_MAX => waiting.push(*snapshot),
                    Some(_) => {}
                    None => self.show(snapshot),
                }
            }
            News::Messages(mailqq) => {
                if self.paused.is_none() {
                    self.mailqq = Some(mailqq);
                }
            }
            News::Opened(text) => {
                if let Some(opened) = &mut self.opened {
                    opened.text = text;
                }
            }
            News::Lost(why) => self.lost = Some(why),
            News::End(why) => (self.is_over, self.error) = (true, why),
        }
    }

    /// Time of day in the zone.
    pub fn clock(&self, at: Ms) -> String {
        clock(at, self.zone.offset_s((at / 1000).cast_signed()).into())
    }

    /// Sets the steady clock, in ms. Returns whether the picture changes.
    pub fn tick(&mut self, now: u64) -> bool {
        let before = self.stale_s();
        self.now = now;
        self.stale_s() != before
    }

    /// Seconds without an expected snapshot; `None` while the picture is live.
    pub fn stale_s(&self) -> Option<u64> {
        let age = self.now.saturating_sub(self.received?);
        let is_late = age > (self.options.interval_ms * LATE_INTERVALS).max(LATE_MS_MIN);
        (is_late || self.lost.is_some()).then_some(age / 1_000)
    }

    fn show(&mut self, mut snapshot: Box<Snapshot>) {
        if snapshot.history.is_empty() {
            self.push(Point {
                at: snapshot.now,
                interval_ms: snapshot.interval_ms,
                accepted: snapshot.since.accepted_recipients,
                delivered: snapshot.since.delivered,
                failed: snapshot.since.failed,
            });
        } else {
            // The snapshot has the whole history, including the time before a lost connection.
            self.points.clear();
            let mut before = None;
            for point in std::mem::take(&mut snapshot.history) {
                let interval_ms = before.replace(point.at).map_or(1_000, |before| point.at.saturating_sub(before));
                self.push(Point {
                    at: point.at,
                    interval_ms,
                    accepted: point.counts.accepted_recipients,
                    delivered: point.counts.delivered,
                    failed: point.counts.failed,
                });
            }
        }
        self.snapshot = Some(snapshot);
    }

    fn push(&mut self, point: Point) {
        if self.points.len() == POINTS_MAX {
            self.points.pop_front();
        }
        self.points.push_back(point);
    }

    /// The last columns of time, newest last.
    pub fn columns(&self, width: usize) -> Vec<Column> {
        let zoom_ms = ZOOMS[self.zoom] * 1_000;
        let mut columns = vec![(Column::default(), 0u64); width];
        let Some(last) = self.points.back().map(|point| point.at / zoom_ms) else {
            return vec![Column::default(); width];
        };
        for point in self.points.iter().rev() {
            let back = (last - (point.at / zoom_ms).min(last)) as usize;
            let Some((column, ms)) = width.checked_sub(1 + back).and_then(|at| columns.get_mut(at)) else { break };
            column.accepted += point.accepted;
            column.delivered += point.delivered;
            column.failed += point.failed;
            *ms += point.interval_ms;
        }
        let rate = |count: u64, ms: u64| (count * 1_000).div_ceil(ms.max(1));
        let rates = |(column, ms): (Column, u64)| Column {
            accepted: rate(column.accepted, ms),
            delivered: rate(column.delivered, ms),
            failed: rate(column.failed, ms),
        };
        columns.into_iter().map(rates).collect()
    }

    /// The sites in the selected order.
    pub fn sites(&self) -> &[SiteNow] {
        self.snapshot.as_ref().map_or(&[], |s| if self.by_latency { &s.by_latency } else { &s.by_pending })
    }

    pub fn rows(&self) -> usize {
        match self.view {
            View::Rates | View::Sites => self.sites().len(),
            View::Messages => self.mailqq.as_ref().map_or(0, |mailqq| mailqq.rows.len()),
        }
    }

    /// The request to send when the view or its filter changes.
    pub fn messages(&self) -> UserRequest {
        UserRequest::Messages(MailqqOptions {
            sort: self.sort,
            rows_max: MESSAGES_MAX,
            list: self.options.list.clone(),
            site: self.options.site.clone(),
            ..MailqqOptions::default()
        })
    }

    /// Pauses the picture, or resumes it with all snapshots received meanwhile.
    pub fn pause(&mut self) {
        match self.paused.take() {
            None => self.paused = Some(Vec::new()),
            Some(waiting) => waiting.into_iter().for_each(|snapshot| self.show(Box::new(snapshot))),
        }
    }

    /// Filters by a list or site, or removes the filter. The view changes once the server accepts it.
    pub fn narrow(&self, prompt: Prompt, text: &str) -> UserRequest {
        let text = Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        let mut options = self.options.clone();
        match prompt {
            Prompt::List => options.list = text,
            Prompt::Site => options.site = text,
        }
        UserRequest::Watch(options)
    }
}
