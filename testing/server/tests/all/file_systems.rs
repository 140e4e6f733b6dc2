//! `kill -9` and a power cut on ext4, xfs and btrfs, under load: nothing acknowledged is lost. The page cache survives
//! a kill; `xfs_io -x -c shutdown` discards it, and the file system's log with it, as a power cut does. `eatmydata`,
//! which makes every sync do nothing, shows that this test can fail.

use std::time::Duration;

use rustix::process::Signal;
use stentor_harness::{Kind, Load, LoopFs, Server, TestLab, wait_until};

use crate::account::{CLIENTS, Crash, MAIL, delays, judge, killed, six_sites, under_load};

const KILLS: usize = 4;
const CUTS: usize = 2;
/// How often a missing sync may go unseen before the checker counts as blind.
const BLIND_ROUNDS_MAX: usize = 4;

/// A server whose data is on the file system, not started yet.
fn on(fs: &LoopFs, lab: &TestLab) -> Server {
    under_load(lab).set("data_dir", &format!("\"{}\"", fs.path().join("data").display())).prepare()
}

fn kills(kind: Kind) {
    let Some(fs) = LoopFs::make(kind) else { return };
    let lab = six_sites();
    let mut server = on(&fs, &lab);
    server.start_again();
    killed(&lab, &mut server, KILLS);
}

#[test]
fn kill_nine_on_ext4_loses_nothing() {
    kills(Kind::Ext4);
}

#[test]
fn kill_nine_on_xfs_loses_nothing() {
    kills(Kind::Xfs);
}

#[test]
fn kill_nine_on_btrfs_loses_nothing() {
    kills(Kind::Btrfs);
}

/// Cuts the power so often under load, then judges. `program`: what the server runs behind.
fn cut(kind: Kind, rounds: usize, program: &[&str]) -> Option<Result<(), String>> {
    let mut fs = LoopFs::make(kind)?;
    let lab = six_sites();
    let mut server = on(&fs, &lab);
    let start = |server: &mut Server| {
        let command = if program.is_empty() { server.command() } else { server.behind(program) };
        server.try_start_as(command)
    };
    start(&mut server).expect("an empty store opens");
    let load = Load::start(&server, lab.recorder(), CLIENTS, MAIL);
    let (mut rng, mut crashes) = (delays(), Vec::new());
    for round in 0..rounds {
        let before = load.taken();
        wait_until("the load goes on", || load.taken() > before + 100);
        std::thread::sleep(Duration::from_millis(rng.u64(0..300)));
        let at_us = lab.recorder().now_us();
        // A power cut stops the server too. If it ran on, an `fdatasync` that waits for a commit of ext4's log while
        // the shutdown aborts that could return 0 without the data (seen with a program of ten lines, in unwritten
        // extents).
        server.signal(Signal::STOP);
        fs.power_cut();
        server.kill();
        crashes.push(Crash::of(at_us, &server));
        println!("round {round}: cut with {} messages taken", load.taken());
        fs.reboot();
        if let Err(log) = start(&mut server) {
            load.end();
            return Some(Err(format!("the start after a power cut: {log}")));
        }
        load.moved(&server);
    }
    let taken = load.end();
    Some(judge(&lab, &server, &taken, &crashes))
}

fn cuts(kind: Kind) {
    if let Some(Err(what)) = cut(kind, CUTS, &[]) {
        panic!("{what}");
    }
}

#[test]
fn a_power_cut_on_ext4_loses_nothing() {
    cuts(Kind::Ext4);
}

#[test]
fn a_power_cut_on_xfs_loses_nothing() {
    cuts(Kind::Xfs);
}

/// Without syncs mail must get lost, or the tests above prove nothing.
fn bites(kind: Kind) {
    for _ in 0..BLIND_ROUNDS_MAX {
        match cut(kind, 1, &["eatmydata"]) {
            None => return,
            Some(Err(what)) => return println!("found: {what}"),
            Some(Ok(())) => {}
        }
    }
    panic!("{BLIND_ROUNDS_MAX} power cuts without any sync, and nothing is found missing");
}

#[test]
fn the_power_cut_test_bites_without_syncs_on_ext4() {
    bites(Kind::Ext4);
}

#[test]
fn the_power_cut_test_bites_without_syncs_on_xfs() {
    bites(Kind::Xfs);
}
