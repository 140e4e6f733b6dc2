//! The state of the terminal view: snapshots and keys in, a picture out. No terminal and no socket here.

use std::collections::VecDeque;

use stentor_control::snapshot::SiteNow;
use stentor_control::{Mailqq, MailqqOptions, MailqqSort};
use stentor_control::{Snapshot, WatchOptions};
use stentor_queue::ids::Ms;

use super::feed::{News, Wish};

/// Points of history that are kept: an hour of seconds.
const POINTS_MAX: usize = 3_600;
/// Messages asked for.
const MESSAGES_MAX: u32 = 200;
/// Seconds of the past that a first snapshot brings.
pub const HISTORY_S: usize = 900;
/// Seconds a column of the charts stands for.
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

/// What came in a stretch of time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Point {
    pub at: Ms,
    pub interval_ms: u64,
    pub delivered: u64,
    pub failed: u64,
}

/// A text that the user opened.
pub struct Opened {
    pub title: String,
    pub text: String,
    pub scroll: u16,
}

pub struct App {
    pub options: WatchOptions,
    pub snapshot: Option<Box<Snapshot>>,
    pub points: VecDeque<Point>,
    pub mailqq: Option<Box<Mailqq>>,
    pub view: View,
    /// Row that is chosen in the lists.
    pub selected: usize,
    pub by_latency: bool,
    pub sort: MailqqSort,
    pub zoom: usize,
    pub prompt: Option<(Prompt, String)>,
    pub opened: Option<Opened>,
    pub shows_help: bool,
    /// While the picture stands still: what has come meanwhile.
    pub paused: Option<Vec<Snapshot>>,
    pub lost: Option<String>,
    pub is_over: bool,
    /// Why, if it is an error.
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
            shows_help: false,
            paused: None,
            lost: None,
            is_over: false,
            error: None,
        }
    }

    pub fn news(&mut self, news: News) {
        match news {
            News::Snapshot(snapshot) => {
                self.lost = None;
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

    fn show(&mut self, mut snapshot: Box<Snapshot>) {
        if snapshot.history.is_empty() {
            self.push(Point {
                at: snapshot.now,
                interval_ms: snapshot.interval_ms,
                delivered: snapshot.since.delivered,
                failed: snapshot.since.failed,
            });
        } else {
            // The whole past, also that of before a pause of the connection.
            self.points.clear();
            let mut before = None;
            for point in std::mem::take(&mut snapshot.history) {
                let interval_ms = before.replace(point.at).map_or(1_000, |before| point.at.saturating_sub(before));
                self.push(Point {
                    at: point.at,
                    interval_ms,
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

    /// Delivered and failed per second in the last columns of time, the newest last.
    pub fn columns(&self, width: usize) -> Vec<(u64, u64)> {
        let zoom_ms = ZOOMS[self.zoom] * 1_000;
        let Some(last) = self.points.back().map(|point| point.at / zoom_ms) else { return vec![(0, 0); width] };
        let mut columns = vec![(0u64, 0u64, 0u64); width];
        for point in self.points.iter().rev() {
            let back = (last - (point.at / zoom_ms).min(last)) as usize;
            let Some(column) = width.checked_sub(1 + back).and_then(|at| columns.get_mut(at)) else { break };
            column.0 += point.delivered;
            column.1 += point.failed;
            column.2 += point.interval_ms;
        }
        let rate = |count: u64, ms: u64| (count * 1_000).div_ceil(ms.max(1));
        columns.into_iter().map(|(delivered, failed, ms)| (rate(delivered, ms), rate(failed, ms))).collect()
    }

    /// The sites in the order that is chosen.
    pub fn sites(&self) -> &[SiteNow] {
        self.snapshot.as_ref().map_or(&[], |s| if self.by_latency { &s.by_latency } else { &s.by_pending })
    }

    pub fn rows(&self) -> usize {
        match self.view {
            View::Rates => 0,
            View::Sites => self.sites().len(),
            View::Messages => self.mailqq.as_ref().map_or(0, |mailqq| mailqq.rows.len()),
        }
    }

    /// What is to be asked for once the view or what narrows it has changed.
    pub fn messages(&self) -> Wish {
        Wish::Messages(MailqqOptions {
            sort: self.sort,
            rows_max: MESSAGES_MAX,
            list: self.options.list.clone(),
            site: self.options.site.clone(),
            ..MailqqOptions::default()
        })
    }

    /// The picture stands still, or goes on with all that has come meanwhile.
    pub fn pause(&mut self) {
        match self.paused.take() {
            None => self.paused = Some(Vec::new()),
            Some(waiting) => waiting.into_iter().for_each(|snapshot| self.show(Box::new(snapshot))),
        }
    }

    /// A list or a site is named, or none.
    pub fn narrow(&mut self, prompt: Prompt, text: &str) -> Vec<Wish> {
        let text = Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        match prompt {
            Prompt::List => self.options.list = text,
            Prompt::Site => self.options.site = text,
        }
        self.points.clear();
        (self.selected, self.paused) = (0, None);
        vec![Wish::Watch(self.options.clone()), self.messages()]
    }
}
