use super::*;

fn spread(median: f64) -> Option<Spread> {
    noisy(median, 0.02)
}

/// As the fields want it.
#[allow(clippy::unnecessary_wraps)]
fn noisy(median: f64, part: f64) -> Option<Spread> {
    Some(Spread { median, min: median * (1.0 - part), max: median * (1.0 + part), runs: 3 })
}

fn place(name: &str, journal: f64, files: f64) -> Figures {
    Figures {
        name: name.to_owned(),
        is_durable: name != "tmpfs",
        journal: spread(journal),
        files: spread(files),
        ..Figures::default()
    }
}

fn text(all: &[Figures], topic: &str) -> (String, Sureness) {
    let found = findings(all).into_iter().find(|finding| finding.topic.starts_with(topic));
    found.map_or((String::new(), Sureness::Fact), |finding| (finding.text, finding.sureness))
}

#[test]
fn the_fastest_durable_place_is_chosen_and_never_memory() {
    let all = [place("xfs", 5000.0, 900.0), place("ext4", 8000.0, 700.0), place("tmpfs", 90_000.0, 50_000.0)];
    let (log, sureness) = text(&all, "Queue in one log");
    assert!(log.starts_with("ext4: 8,000 records/s") && log.contains("1.6 times as fast as xfs (5,000)"), "{log}");
    assert_eq!(sureness, Sureness::Sure);
    let (files, _) = text(&all, "Queue of files");
    assert!(files.starts_with("xfs: 900 cycles/s"), "{files}");
    assert!(findings(&all).iter().all(|finding| !finding.text.starts_with("tmpfs")));
}

#[test]
fn what_overlaps_is_no_difference() {
    let mut all = [place("xfs", 5000.0, 900.0), place("ext4", 5600.0, 700.0), place("btrfs", 1000.0, 100.0)];
    all[0].journal = noisy(5000.0, 0.1);
    all[1].journal = noisy(5600.0, 0.1);
    let (log, sureness) = text(&all, "Queue in one log");
    assert_eq!(sureness, Sureness::Open);
    assert!(
        log.contains("ext4 (5,600) and xfs (5,000) cannot be told apart") && log.contains("5.6 times as fast as btrfs"),
        "{log}"
    );
    assert_eq!(summary(&all).unwrap(), "Put a queue in one log on ext4 or xfs; put a queue of files on xfs.");
    (all[0].files, all[1].files) = (noisy(900.0, 0.9), noisy(900.0, 0.9));
    all[2].files = noisy(900.0, 0.9);
    all[2].journal = noisy(1000.0, 0.9);
    assert!(summary(&all).unwrap().starts_with("The figures vary too much"), "{:?}", summary(&all));
    // Clear medians whose extremes come near.
    all[0].journal = noisy(4600.0, 0.09);
    all[1].journal = noisy(5600.0, 0.09);
    assert_eq!(text(&all, "Queue in one log").1, Sureness::Likely);
}

#[test]
fn settings_follow_the_numbers_both_ways() {
    let mut one = place("ext4", 5000.0, 1000.0);
    one.recycled = spread(14_000.0);
    one.growing = spread(7000.0);
    (one.growing_writes, one.recycled_writes) = (spread(3.9), spread(1.0));
    let (segments, sureness) = text(&[one.clone()], "Segments");
    assert!(segments.contains("2.0 times as many commits/s as with a growing file"), "{segments}");
    assert!(segments.contains("1.0 device writes in place of 3.9") && sureness == Sureness::Sure, "{segments}");
    (one.recycled, one.growing) = (one.growing, one.recycled);
    assert!(text(&[one.clone()], "Segments").0.starts_with("Not recycled segments"), "{one:?}");
    one.growing = one.recycled;
    assert!(text(&[one.clone()], "Segments").0.contains("no clear difference"));
    one.files_hashed = spread(500.0);
    let (hashed, _) = text(&[one.clone()], "Hashed");
    assert!(hashed.starts_with("Not hashed directories on ext4: with flat ones 2.0 times"), "{hashed}");
    one.growing = None;
    assert_eq!(text(&[one], "Segments").0, "");
}

#[test]
fn only_what_is_clear_is_advised() {
    let mut one = place("ext4", 5000.0, 1000.0);
    (one.recycled, one.growing) = (spread(14_000.0), spread(7000.0));
    (one.files_hashed, one.files_reused) = (spread(500.0), spread(1010.0));
    assert_eq!(
        summary(&[one.clone(), place("tmpfs", 9e9, 9e9)]).unwrap(),
        "The only durable place that was measured is ext4. Then recycle the log's segments; keep the directories of queue \
         files flat."
    );
    assert_eq!(summary(&[place("tmpfs", 1.0, 1.0)]), None);
}

#[test]
fn the_bound_says_who_decides() {
    let memory = place("tmpfs", 10_000.0, 1.0);
    assert!(text(&[place("ext4", 9000.0, 1.0), memory.clone()], "Bound").0.contains("90 %"));
    assert!(text(&[place("ext4", 9000.0, 1.0), memory.clone()], "Bound").0.contains("processor decides"));
    assert!(text(&[place("ext4", 500.0, 1.0), memory], "Bound").0.contains("the rest is the disk's"));
}

#[test]
fn how_sure_follows_from_the_spread() {
    let said = |part: f64| {
        let mut one = place("ext4", 1.0, 1.0);
        (one.journal, one.files) = (noisy(100.0, part), noisy(100.0, part));
        caveats(&[one], false, false).join(" ")
    };
    assert!(said(0.02).contains("repeat well") && said(0.15).contains("roughly") && said(0.4).contains("hardly"));
    let mut once = place("ext4", 1.0, 1.0);
    (once.journal, once.files) = (Some(Spread::once(5.0)), None);
    assert!(caveats(&[once], true, true).join(" ").contains("single run"));
    assert!(caveats(&[place("tmpfs", 1.0, 1.0)], true, true).len() == 4);
}

#[test]
fn without_figures_nothing_is_said() {
    assert!(findings(&[Figures { is_durable: true, ..Figures::default() }]).is_empty());
    assert!(findings(&[]).is_empty());
}

#[test]
fn group_commit_and_engines_are_compared() {
    let mut one = place("ext4", 1000.0, 100.0);
    one.journal_many = spread(50_000.0);
    (one.grouped, one.alone) = (spread(20_000.0), spread(2000.0));
    let said = |one: &Figures, topic: &str| text(std::slice::from_ref(one), topic).0;
    assert!(
        said(&one, "Records a sync").contains("50 times as many records/s as with one"),
        "{}",
        said(&one, "Records")
    );
    let group = said(&one, "Group");
    assert!(group.starts_with("Twenty writers through one committer on ext4: 10 times as many"), "{group}");
    // What the device counts is said even where the rates say the opposite.
    (one.grouped, one.alone) = (one.alone, one.grouped);
    (one.grouped_writes, one.alone_writes) = (Some(Spread::once(0.2)), Some(Spread::once(2.0)));
    let group = said(&one, "Group");
    assert!(group.starts_with("Not twenty writers") && group.contains("0.2 device writes in place of 2.0"), "{group}");
    assert_eq!(said(&one, "Log or files"), "", "only what as many do at the same time is compared");
    one.files_many = spread(40.0);
    assert!(said(&one, "Log or files").contains("50 times as many messages/s"), "{}", said(&one, "Log or files"));
    one.engines = vec![
        ("journal".to_owned(), spread(1000.0), None),
        ("redb".to_owned(), spread(200.0), None),
        ("SQLite".to_owned(), spread(500.0), None),
    ];
    assert!(said(&one, "Engines").contains("2.0 times as many records durable a second as SQLite"));
    one.engines[0].1 = spread(100.0);
    assert!(said(&one, "Engines").starts_with("SQLite makes 5.0 times"));
}

#[test]
fn load_decides_between_equals_and_contradicts_where_it_does() {
    let grouped = |mut one: Figures, rate: f64| {
        one.grouped = spread(rate);
        one
    };
    let equal = [grouped(place("xfs", 5000.0, 500.0), 9000.0), grouped(place("ext4", 5100.0, 500.0), 20_000.0)];
    assert!(summary(&equal).unwrap().starts_with("Put a queue in one log on ext4; for a queue of files no place"));
    assert!(
        text(&equal, "Under load").0.contains("ext4 can be told from the others"),
        "{:?}",
        text(&equal, "Under load")
    );
    let apart = [grouped(place("xfs", 9000.0, 900.0), 9000.0), grouped(place("ext4", 5000.0, 500.0), 20_000.0)];
    let short = summary(&apart).unwrap();
    assert!(
        short.starts_with("Put the queue on xfs, whether")
            && short.contains("If it is busy, one log is better on ext4.")
    );
    let (load, sureness) = text(&apart, "Under load");
    assert!(load.contains("contradict") && load.contains("ext4 is 2.2 times as fast as xfs"), "{load}");
    assert_eq!(sureness, Sureness::Sure);
    let open = [place("xfs", 5000.0, 500.0), place("ext4", 5000.0, 500.0)];
    let short = summary(&open).unwrap();
    assert!(
        short.starts_with("For a queue in one log no place is clearly faster (xfs or ext4); for a queue of"),
        "{short}"
    );
}

#[test]
fn ranges_are_said_and_nothing_follows_from_wide_ones() {
    let mut one = place("ext4", 1000.0, 1.0);
    one.journal = noisy(1000.0, 0.95);
    let memory = place("tmpfs", 1100.0, 1.0);
    let bound = text(&[one.clone(), memory], "Bound").0;
    assert!(bound.contains("91 % (4.5-181) of what") && bound.contains("differs from run to run"), "{bound}");
    let tail = |usual: Option<Spread>, rare: f64| {
        let one = Figures { sync_p50_us: usual, sync_p99_us: Some(Spread::once(rare)), ..one.clone() };
        text(&[one], "Latency").0
    };
    assert!(tail(spread(100.0), 9000.0).contains("90 times the usual: a server must not"));
    assert!(tail(spread(100.0), 300.0).contains("300 us or more: a short tail"));
    let wide = Some(Spread { median: 96.0, min: 80.0, max: 6478.0, runs: 3 });
    assert!(tail(wide, 15_925.0).starts_with("A sync on ext4 takes 96 us (80-6,478)"), "{}", tail(wide, 15_925.0));
    assert!(tail(wide, 15_925.0).contains("differs from run to run"));
}

#[test]
fn device_writes_are_said_by_place() {
    let with = |name: &str, log: f64, files: f64| Figures {
        recycled_writes: spread(log),
        file_writes: spread(files),
        ..place(name, 1.0, 1.0)
    };
    let all = [with("btrfs", 11.0, 13.0), with("xfs", 2.0, 2.0), with("ext4", 2.0, 3.0)];
    let said = text(&all, "Device writes").0;
    assert!(said.contains("recycled log takes: 2.0 on xfs and ext4, 11 on btrfs; a queue file"), "{said}");
    assert!(said.contains("2.0 on xfs, 3.0 on ext4, 13 on btrfs"), "{said}");
    // Where rates decide nothing, these do: in the advice, and in which place the rest is said of.
    let short = summary(&all).unwrap();
    let log =
        "For a queue in one log no place is clearly faster (btrfs, xfs or ext4, of which xfs and ext4 take the fewest";
    assert!(short.starts_with(log), "{short}");
    assert!(
        short.contains("of files no place is clearly faster (btrfs, xfs or ext4, of which xfs takes the fewest"),
        "{short}"
    );
    let best = (place::best_for_log(&all).unwrap(), place::best_for_files(&all).unwrap());
    assert_eq!((best.0.name.as_str(), best.1.name.as_str()), ("xfs", "xfs"));
    assert_eq!(device_writes_of_none(), None);
}

fn device_writes_of_none() -> Option<Finding> {
    place::device_writes(&[Figures { is_durable: true, ..Figures::default() }])
}
