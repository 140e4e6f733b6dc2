//! Totals of texts from the kernel's and trace-cmd's own documentation, worked out by hand.

use proptest::prelude::*;
use stentor_measure::{Cell, Report};

use super::*;
use crate::text::totals::Function;

fn totals(text: &str) -> Totals {
    read(text.as_bytes()).unwrap()
}

/// Calls, inclusive and exclusive ns, unfinished.
fn of(totals: &Totals, name: &str) -> (u64, u64, u64, u64) {
    let function: &Function = totals.functions.get(name).unwrap_or_else(|| panic!("{name}: {:?}", totals.functions));
    (function.calls, function.inclusive_ns, function.exclusive_ns, function.unfinished)
}

/// trace-cmd-record(1), "EXAMPLES".
const RECORD_MAN: &str = include_str!("fixtures/trace-cmd-record.1.txt");
/// The kernel's Documentation/trace/ftrace.rst, "function graph tracer": one excerpt after the other.
const SYS_OPEN: &str = include_str!("fixtures/ftrace-sys-open.txt");
const MARKS: &str = include_str!("fixtures/ftrace-marks.txt");
const TASKS: &str = include_str!("fixtures/ftrace-proc.txt");
const ABSTIME: &str = include_str!("fixtures/ftrace-abstime.txt");
const RETVAL: &str = include_str!("fixtures/ftrace-retval.txt");
/// `trace-cmd extract -B stentorx` and `trace-cmd report` of version 3.1.6, of five synchronous writes by dd on a 6.18
/// kernel.
const REPORT: &str = include_str!("fixtures/trace-cmd-report.txt");
/// In the forms of `kernel/trace/trace_functions_graph.c`: switches of tasks, and interrupts.
const SWITCHES: &str = include_str!("fixtures/switches.txt");

#[test]
fn the_manual_of_trace_cmd() {
    let totals = totals(RECORD_MAN);
    // 36.358 + 24.014 + 22.928 + 37.512 + 25.943
    assert_eq!(of(&totals, "do_IRQ"), (5, 146_755, 146_755, 0));
    let durations = &totals.functions["do_IRQ"].durations;
    assert_eq!((durations.least(), durations.percentile(0.5), durations.greatest()), (22_928, 25_943, 37_512));
    assert!((totals.functions["do_IRQ"].mean_ns() - 29_351.0).abs() < 0.5);
    assert_eq!(totals.events["irq_handler_entry"], 5);
    assert_eq!(totals.processes["<idle>-0"].events, 15);
    assert_eq!((totals.unknown_lines, totals.lost_in_all(), totals.nameless), (0, 0, 0));
}

#[test]
fn callees_are_not_counted_again() {
    let totals = totals(SYS_OPEN);
    assert_eq!(of(&totals, "__might_sleep"), (2, 1_382 + 1_389, 1_382 + 1_389, 0));
    assert_eq!(of(&totals, "kmem_cache_alloc"), (1, 2_478, 2_478 - 1_382, 0));
    assert_eq!(of(&totals, "might_fault"), (1, 2_553, 2_553 - 1_389, 0));
    assert_eq!(of(&totals, "strncpy_from_user"), (1, 3_807, 3_807 - 2_553, 0));
    assert_eq!(of(&totals, "getname"), (1, 7_876, 7_876 - 2_478 - 3_807, 0));
    assert_eq!(of(&totals, "_spin_lock"), (1, 668, 668, 0));
    for name in ["sys_open", "do_sys_open", "alloc_fd"] {
        assert_eq!(of(&totals, name), (0, 0, 0, 1), "{name}");
    }
    // All that ended at the top: getname and the three below alloc_fd.
    assert_eq!(totals.processes["cpu 0"].exclusive_ns, 7_876 + 668 + 570 + 586);
}

#[test]
fn marks_of_overhead_and_two_processors() {
    let totals = totals(MARKS);
    assert_eq!(of(&totals, "schedule_preempt_disabled"), (1, 33_998_590, 33_998_590 - 2_034_948, 0));
    assert_eq!(of(&totals, "schedule"), (1, 2_034_948, 2_034_948 - 140_417, 0));
    // `finish_task_switch` is within the first `__schedule`, whose beginning is not there; so is `__switch_to`. The
    // second one is shorter than what is in it (another task's call, as the stacks were swapped): nothing is its own.
    assert_eq!(of(&totals, "__schedule").1, 1_889_063 + 140_417);
    assert_eq!(totals.functions["__schedule"].exclusive_ns, 1_889_063 - 1_837_709 - 3_177);
    assert_eq!(totals.functions["__schedule"].headless, 2);
    assert_eq!(of(&totals, "finish_task_switch"), (1, 3_177, 3_177 - 313, 0));
    assert_eq!(of(&totals, "rcu_irq_exit"), (1, 3_125, 3_125 - 417, 0));
    // CPU 2's call is closed by CPU 2's bracket, though CPU 1's stand between.
    assert_eq!(of(&totals, "handle_IPI"), (1, 3_490, 3_490 - 417, 0));
    assert_eq!(totals.unknown_lines, 0);
}

#[test]
fn columns_of_task_and_time() {
    let tasks = totals(TASKS);
    assert_eq!(of(&tasks, "__call_rcu"), (1, 2_899, 2_899 - 616 - 586, 0));
    assert_eq!(of(&tasks, "call_rcu"), (1, 4_040, 4_040 - 2_899, 0));
    assert_eq!(of(&tasks, "d_free"), (1, 5_151, 5_151 - 4_040, 0));
    assert_eq!((tasks.nameless, tasks.processes["sh-4802"].calls), (1, 5));
    let times = totals(ABSTIME);
    assert_eq!(of(&times, "__wake_up_bit"), (1, 541, 541, 0));
    assert_eq!(of(&times, "journal_mark_dirty"), (1, 615, 615, 0));
    assert_eq!(of(&times, "__phys_addr"), (1, 594, 594, 0));
    assert_eq!((times.nameless, times.unknown_lines), (5, 0));
    assert_eq!(of(&times, "bit_waitqueue"), (0, 0, 0, 1));
}

#[test]
fn returned_values_are_no_part_of_names() {
    let totals = totals(RETVAL);
    assert_eq!(of(&totals, "cgroup_migrate_add_task"), (1, 651, 651, 0));
    assert_eq!(of(&totals, "cgroup_taskset_first"), (1, 1_232, 500, 0));
    assert_eq!(of(&totals, "cpu_cgroup_can_attach"), (1, 2_335, 2_335 - 1_232 - 380, 0));
    assert_eq!(of(&totals, "cgroup_migrate_execute"), (1, 4_369, 4_369 - 2_335, 0));
    assert_eq!(of(&totals, "cgroup_migrate"), (1, 7_143, 7_143 - 651 - 4_369, 0));
    let all: u64 = totals.functions.values().map(|function| function.exclusive_ns).sum();
    assert_eq!(all, 7_143);
}

#[test]
fn tasks_that_switch_keep_their_calls_and_interrupts_are_told_apart() {
    let totals = totals(SWITCHES);
    // Begun on CPU 0 before anybody was named, ended on CPU 1.
    assert_eq!(of(&totals, "ext4_sync_file"), (1, 1_429_000, 1_429_000 - 1_400_000, 0));
    assert_eq!(of(&totals, "jbd2_log_wait_commit"), (1, 1_400_000, 1_400_000, 0));
    assert_eq!(of(&totals, "submit_bh"), (1, 20_000, 20_000 - 12_500, 0));
    assert_eq!(of(&totals, "do_IRQ"), (1, 12_500, 12_500, 0));
    assert_eq!(totals.processes["jbd2/vda-8-101"].interrupt_ns, 12_500);
    assert_eq!(totals.processes["my app: x-1-2022"].exclusive_ns, 1_429_000);
    assert_eq!(totals.events["block_rq_issue"], 1);
    assert_eq!((totals.lost[&1], totals.losses_uncounted, totals.unknown_lines), (7, 1, 0));
    assert_eq!(totals.lost_in_all(), 7);
}

#[test]
fn tracepoints_of_a_named_buffer() {
    let totals = totals(REPORT);
    let counts = ["sched_switch", "block_bio_queue", "block_rq_issue", "block_rq_complete", "ext4_sync_file_enter"];
    assert_eq!(counts.map(|name| totals.events[name]), [16, 3, 2, 2, 1]);
    let of = |name: &str| totals.processes[name].events;
    assert_eq!((of("dd-3149"), of("lto cgu.08.rcgu-3128"), of("kworker/u8:1-12409")), (22, 4, 1));
    assert_eq!((totals.lines, totals.unknown_lines, totals.events.values().sum()), (40, 0, 40_u64));
}

#[test]
fn names_of_threads_hold_anything() {
    let text = "   my app: x-1 [9]-2022  [003] d..2.  100.000001: funcgraph_entry:        0.250 us   |  fput();\n\
                  kworker/u4:1-ev-33    (   33) [001]    5.000002: sched_switch:         a:1 [120] S ==> b:2 [120]\n\
                  bash-1994  [002] ....  3082.063030: mutex_unlock <-rb_simple_write\n\
                  CPU:7 [204600 EVENTS DROPPED]\n\
                  <...>-3979  [007]   217.975284: sched_stat_runtime:   comm=Thread-103 pid=3979 runtime=5014167 [ns]\n";
    let totals = totals(text);
    assert_eq!(totals.unknown_lines, 0);
    let names: Vec<&str> = totals.processes.keys().map(String::as_str).collect();
    assert_eq!(names, ["<...>-3979", "bash-1994", "kworker/u4:1-ev-33", "my app: x-1 [9]-2022"]);
    assert_eq!(of(&totals, "fput"), (1, 250, 250, 0));
    assert_eq!(totals.lost[&7], 204_600);
    assert_eq!(totals.events["function"], 1);
}

/// trace-cmd-report(1), `-l`, `-t` and `--ts-diff`.
#[test]
fn other_columns_of_trace_cmd_report() {
    let text = "          <idle>-0       0d.h1. 106467.859747: function:             ktime_get <-- tick_check_idle\n\
                  my app: x-12    1...1. 106467.859750: funcgraph_entry:        0.500 us   |  fput();\n\
                  ls-11314 [005] 185207.366383123: (+12)    sched_switch: ls:11314 [120] S ==> b:2 [120]\n\
                  ls-11314 [005] 185207.366384:          funcgraph_entry:        1.250 us   |  fget();\n\
                  ls-11314 [005] 185207.366385: (+2)     funcgraph_exit:       + 36.358 us  |  }\n";
    let totals = totals(text);
    assert_eq!((totals.unknown_lines, totals.nameless), (0, 1));
    assert_eq!((of(&totals, "fput"), of(&totals, "fget")), ((1, 500, 500, 0), (1, 1_250, 1_250, 0)));
    assert_eq!((totals.events["function"], totals.events["sched_switch"]), (1, 1));
    let names: Vec<&str> = totals.processes.keys().map(String::as_str).collect();
    assert_eq!(names, ["<idle>-0", "ls-11314", "my app: x-12"]);
}

#[test]
fn recursion_and_lost_ends() {
    let line =
        |kind: &str, left: &str, right: &str| format!("  a-1  [000]  1.000001: funcgraph_{kind}: {left} | {right}\n");
    let text = [
        line("entry", "", "walk() {"),
        line("entry", "", "  walk() {"),
        line("exit", "10.000 us", "  }"),
        line("exit", "30.000 us", "}"),
        // Its end is lost, and so is the beginning of the next.
        line("entry", "", "gone() {"),
        line("entry", "1.000 us", "  leaf();"),
        line("entry", "", "next() {"),
        line("exit", "2.000 us", "} /* next */"),
        line("exit", "9.000 us", "  } /* other */"),
    ]
    .concat();
    let totals = totals(&text);
    // Calls within itself are in the sum, but not added to the time that it took.
    assert_eq!(of(&totals, "walk"), (2, 30_000, 30_000, 0));
    assert!((totals.functions["walk"].mean_ns() - 20_000.0).abs() < 0.5);
    assert_eq!(of(&totals, "gone"), (0, 0, 0, 1));
    assert_eq!(of(&totals, "next"), (1, 2_000, 2_000, 0));
    assert_eq!((of(&totals, "other"), totals.functions["other"].headless), ((1, 9_000, 9_000, 0), 1));
}

#[test]
fn tables_and_doubts() {
    let mut report = Report::new("iotrace", "x");
    report::fill(&mut report, &totals(SWITCHES)).unwrap();
    assert!(report.warnings[0].contains("7 events lost (CPU 1: 7)"), "{:?}", report.warnings);
    let functions = report.tables.iter().find(|table| table.name == "functions").unwrap();
    assert_eq!(functions.rows[0][0], Cell::text("jbd2_log_wait_commit"));
    assert_eq!(functions.rows[0][2], Cell::Number(1_400.0, 3));
    assert!(report::fill(&mut report, &totals("hello\nworld\n")).unwrap_err().contains("none of 2 lines"));
}

proptest! {
    #[test]
    fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let totals = read(&bytes[..]).unwrap();
        prop_assert!(totals.unknown_lines <= totals.lines);
    }

    /// Lines like those of a trace, cut and mixed: exclusive time is never more than all calls' durations.
    #[test]
    fn any_lines_are_read(picks in proptest::collection::vec((0_usize..200, 0_usize..90), 0..60)) {
        let lines: Vec<&str> = [REPORT, RECORD_MAN, SYS_OPEN, MARKS, TASKS, ABSTIME, RETVAL, SWITCHES]
            .iter().flat_map(|text| text.lines()).collect();
        let mut text = String::new();
        for (at, cut) in &picks {
            let line = lines[at % lines.len()];
            let end = if *cut < 20 { (*cut * 4).min(line.len()) } else { line.len() };
            text.push_str(line.get(..end).unwrap_or(line));
            text.push('\n');
        }
        let totals = totals(&text);
        for function in totals.functions.values() {
            prop_assert!(function.exclusive_ns <= function.sum_ns && function.inclusive_ns <= function.sum_ns);
        }
    }
}
