//! How a run ended: what is done, what failed, what nobody knows, what was not begun, and what to type next.

use std::{collections::BTreeMap, time::Duration};

use ichor_engine::{Outcome, RunReport};
use ichor_model::step::StepId;
use ichor_plan::ClusterPlan;
use serde_json::{Value, json};

use super::{duration, progress::outcome_keys, text};
use crate::exit::Exit;

/// Most reasons that are told in full; the others are counted.
const MAX_REASONS: usize = 8;

/// A run that has ended.
#[derive(Debug, Clone, Copy)]
pub struct Finish<'a> {
    /// What ran, such as `up`.
    pub verb: &'a str,
    /// The name of the cluster.
    pub cluster: &'a str,
    /// What was to be done.
    pub plan: &'a ClusterPlan,
    /// What came of it.
    pub report: &'a RunReport,
    /// Whether nothing is left to do, as far as was seen after all steps.
    pub done: bool,
    /// How long it took.
    pub took: Duration,
    /// How long each line of the progress took, if somebody looked.
    pub lasted: &'a [(String, Duration)],
    /// What to type to go on, such as `ichor up`.
    pub again: &'a str,
    /// What to type after success, such as `ichor kubeconfig`.
    pub then: &'a str,
}

/// Says how the program ends after a run that left nothing to do, or something.
pub fn exit(report: &RunReport, done: bool) -> Exit {
    let any = |wanted: fn(&Outcome) -> bool| report.steps(wanted).next().is_some();
    if report.is_complete() && done {
        Exit::Done
    } else if report.stopped {
        Exit::Interrupted
    } else if any(|outcome| matches!(outcome, Outcome::Refused { .. })) {
        Exit::Refused
    } else if any(|outcome| matches!(outcome, Outcome::Done | Outcome::Unknown { .. })) {
        Exit::PartWay
    } else {
        Exit::Failed
    }
}

/// Returns the end of a run as people see it.
pub fn text(finish: Finish<'_>) -> String {
    if is_success(finish) { success(finish) } else { failure(finish) }
}

fn is_success(finish: Finish<'_>) -> bool {
    exit(finish.report, finish.done) == Exit::Done
}

fn success(finish: Finish<'_>) -> String {
    let Finish { cluster, took, then, .. } = finish;
    let (all, skipped) = (finish.report.outcomes.len(), skipped(finish.report));
    let already = if skipped > 0 { format!(" ({skipped} of them already)") } else { String::new() };
    let mut lines = vec![format!(
        "{}: cluster `{cluster}`: {} done in {}{already}",
        text::good("ok"),
        text::count(all, "step"),
        duration::exact(took),
    )];
    if let Some((name, time)) = finish.lasted.iter().max_by_key(|(_, time)| *time) {
        lines.push(format!("  `{}` took longest: {}", text::safe_line(name), duration::exact(*time)));
    }
    if !then.is_empty() {
        lines.push(format!("{}: next:\n    {then}", text::hint("hint")));
    }
    lines.join("\n") + "\n"
}

fn skipped(report: &RunReport) -> usize {
    report.steps(|outcome| *outcome == Outcome::Skipped).count()
}

fn failure(finish: Finish<'_>) -> String {
    let Finish { verb, cluster, report, took, again, .. } = finish;
    let how = match exit(report, finish.done) {
        Exit::Interrupted => "was stopped",
        Exit::PartWay if report.is_complete() => "has done all its steps, and is not known to be finished,",
        Exit::Refused => "was refused",
        Exit::PartWay => "stopped part-way",
        _ => "failed",
    };
    let mut lines = vec![format!(
        "{}: `{verb}` of cluster `{cluster}` {how} after {}",
        text::bad("error"),
        duration::exact(took)
    )];
    lines.extend(reasons(finish));
    lines.extend(tally(finish));
    let advice = if report.steps(|outcome| matches!(outcome, Outcome::Unknown { .. })).next().is_some() {
        "the next run looks at what is unknown before it does anything, and goes on from there:"
    } else if report
        .steps(|outcome| matches!(outcome, Outcome::Failed { .. } | Outcome::Refused { .. }))
        .next()
        .is_some()
    {
        "mend the cause, then run it again; it goes on where it stopped:"
    } else {
        "it goes on where it stopped:"
    };
    lines.push(format!("{}: {advice}\n    {again}", text::hint("hint")));
    lines.join("\n") + "\n"
}

/// Says why, once for all steps that ended in the same way.
fn reasons(finish: Finish<'_>) -> Vec<String> {
    let mut causes: BTreeMap<(u8, &str, &str, Option<&str>), Vec<String>> = BTreeMap::new();
    for (step, outcome) in &finish.report.outcomes {
        if let Some(cause) = cause(outcome) {
            causes.entry(cause).or_default().push(name(finish.plan, step));
        }
    }
    let mut lines: Vec<String> = Vec::new();
    for ((_, word, message, hint), steps) in causes.iter().take(MAX_REASONS) {
        lines.push(format!("  {}: {}", paint(word), text::list_some(steps, text::MAX_NAMES)));
        lines.push(format!("    {}", text::safe_line(message)));
        if let Some(hint) = hint {
            let hint = text::safe_lines(hint).replace('\n', "\n    ");
            lines.push(format!("    {}: {hint}", text::hint("hint")));
        }
    }
    let more = causes.len().saturating_sub(MAX_REASONS);
    if more > 0 {
        lines.push(format!("  and {more} more reasons"));
    }
    lines
}

/// Returns what is to be told about an outcome; the number is the order in which it is told.
fn cause(outcome: &Outcome) -> Option<(u8, &'static str, &str, Option<&str>)> {
    match outcome {
        Outcome::Failed { message, hint } => Some((0, "failed", message, hint.as_deref())),
        Outcome::Refused { message } => Some((1, "refused", message, None)),
        Outcome::Unknown { message } => Some((2, "unknown", message, None)),
        Outcome::Done | Outcome::Skipped | Outcome::Blocked { .. } | Outcome::NotBegun => None,
    }
}

fn paint(word: &str) -> String {
    if word == "unknown" { text::warn(word) } else { text::bad(word) }
}

/// Names a step by its machine and what it does.
fn name(plan: &ClusterPlan, step: &StepId) -> String {
    let found = plan.steps().iter().find(|it| it.id == *step);
    let named = found.map(|it| match it.action.machine() {
        Some(machine) if !machine.is_empty() => format!("{machine} ({})", it.action),
        _ => it.action.to_string(),
    });
    text::safe_line(&named.unwrap_or_else(|| step.to_string()))
}

/// Counts and names what is done and what was not begun.
fn tally(finish: Finish<'_>) -> Vec<String> {
    let named = |wanted: fn(&Outcome) -> bool, of: &str| {
        let steps = finish.report.steps(wanted).map(|(step, _)| text::safe_line(step.as_str()));
        let steps: Vec<String> = steps.collect();
        let names = text::list_some(&steps, MAX_REASONS);
        (!steps.is_empty()).then(|| format!("{}{of}: {names}", steps.len()))
    };
    let of = format!(" of {}", text::count(finish.report.outcomes.len(), "step"));
    let done = named(Outcome::is_good, &of).unwrap_or_else(|| "nothing".to_owned());
    let not_begun = named(|outcome| matches!(outcome, Outcome::Blocked { .. } | Outcome::NotBegun), "");
    let not_begun = not_begun.map(|steps| format!("  not begun: {steps}"));
    [Some(format!("  done: {done}")), not_begun].into_iter().flatten().collect()
}

/// Returns the steps that did not end well, for programs, each with why. Those that wait for them are not among them.
pub fn trouble(report: &RunReport) -> Vec<Value> {
    report
        .steps(|outcome| cause(outcome).is_some())
        .map(|(step, outcome)| step_document(step, outcome))
        .collect()
}

fn step_document(step: &StepId, outcome: &Outcome) -> Value {
    let mut value = json!({"step": step});
    if let (Value::Object(value), Value::Object(keys)) = (&mut value, outcome_keys(outcome)) {
        value.extend(keys);
    }
    value
}

/// Returns how many steps ended in which way, for programs.
pub fn counts(report: &RunReport) -> Value {
    let count = |wanted: fn(&Outcome) -> bool| report.steps(wanted).count();
    json!({
        "done": count(|outcome| *outcome == Outcome::Done),
        "skipped": count(|outcome| *outcome == Outcome::Skipped),
        "failed": count(|outcome| matches!(outcome, Outcome::Failed { .. })),
        "refused": count(|outcome| matches!(outcome, Outcome::Refused { .. })),
        "unknown": count(|outcome| matches!(outcome, Outcome::Unknown { .. })),
        "not_begun": count(|outcome| matches!(outcome, Outcome::Blocked { .. } | Outcome::NotBegun)),
    })
}

/// Returns the end of a run for programs.
pub fn document(finish: Finish<'_>) -> Value {
    let report = finish.report;
    let exit = exit(report, finish.done);
    let steps = report.outcomes.iter().map(|(step, outcome)| step_document(step, outcome));
    let steps: Vec<Value> = steps.collect();
    json!({
        "event": "report",
        "verb": finish.verb,
        "cluster": finish.cluster,
        "complete": report.is_complete(),
        "finished": finish.done,
        "stopped": report.stopped,
        "exit_code": exit.code(),
        "exit": exit.meaning(),
        "took_ms": u64::try_from(finish.took.as_millis()).unwrap_or(u64::MAX),
        "counts": counts(report),
        "next": if is_success(finish) { finish.then } else { finish.again },
        "steps": steps,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::{document, fixture};

    fn report(changes: &[(&str, Outcome)]) -> (ClusterPlan, RunReport) {
        let plan = fixture::plan_from_nothing(&fixture::live());
        let mut report = RunReport::default();
        for step in plan.steps() {
            report.outcomes.insert(step.id.clone(), Outcome::Done);
        }
        for (step, outcome) in changes {
            let step = StepId::new(*step);
            assert!(report.outcomes.insert(step, outcome.clone()).is_some());
        }
        (plan, report)
    }

    fn finish<'a>(
        plan: &'a ClusterPlan,
        report: &'a RunReport,
        lasted: &'a [(String, Duration)],
    ) -> Finish<'a> {
        Finish {
            verb: "up",
            cluster: "homelab",
            plan,
            report,
            done: report.is_complete(),
            took: Duration::from_millis(72_400),
            lasted,
            again: "ichor up",
            then: "ichor kubeconfig --out kubeconfig",
        }
    }

    fn shown(finish: Finish<'_>) -> String {
        anstream::adapter::strip_str(&text(finish)).to_string()
    }

    fn failed(message: &str) -> Outcome {
        Outcome::Failed { message: message.into(), hint: Some("grant it:\n    pveum acl modify".into()) }
    }

    fn refused() -> Outcome {
        Outcome::Refused { message: "VM 2001 is not ours: it has another uuid".into() }
    }

    fn unknown() -> Outcome {
        Outcome::Unknown { message: "no answer within 20m".into() }
    }

    #[test]
    fn success_is_short_and_says_what_comes_next() {
        let (plan, mut report) = report(&[]);
        let lasted =
            [("cp-1".to_owned(), Duration::from_secs(70)), ("cp-2".to_owned(), Duration::from_mins(1))];
        report.outcomes.insert(StepId::new("cluster/pool"), Outcome::Skipped);
        insta::assert_snapshot!(shown(finish(&plan, &report, &lasted)), @r"
        ok: cluster `homelab`: 34 steps done in 1m 12s (1 of them already)
          `cp-1` took longest: 1m 10s
        hint: next:
            ichor kubeconfig --out kubeconfig
        ");
    }

    #[test]
    fn a_run_that_broke_says_done_unknown_and_next() {
        let by = || Outcome::Blocked { by: StepId::new("machine/cp-1/create") };
        let denied = "Proxmox answered 403: Permission check failed (/storage/local-lvm)";
        let (plan, report) = report(&[
            ("machine/cp-1/create", failed(denied)),
            ("machine/cp-3/create", failed(denied)),
            ("machine/cp-2/start", refused()),
            ("machine/worker-1/configure", unknown()),
            ("machine/cp-1/start", by()),
            ("machine/cp-1/talos", by()),
            ("machine/cp-2/talos", Outcome::NotBegun),
        ]);
        insta::assert_snapshot!(shown(finish(&plan, &report, &[])), @r"
        error: `up` of cluster `homelab` was refused after 1m 12s
          failed: cp-1 (create VM 2000 on host pve1) and cp-3 (create VM 2002 on host pve3)
            Proxmox answered 403: Permission check failed (/storage/local-lvm)
            hint: grant it:
                pveum acl modify
          refused: cp-2 (start VM 2001)
            VM 2001 is not ours: it has another uuid
          unknown: worker-1 (apply the machine config)
            no answer within 20m
          done: 27 of 34 steps: cluster/bootstrap, cluster/kubernetes, cluster/pool, image/pve1/local:import/ichor-talos-v1.13.9-nocloud-amd64-.qcow2, image/pve2/local:import/ichor-talos-v1.13.9-nocloud-amd64-.qcow2, image/pve3/local:import/ichor-talos-v1.13.9-nocloud-amd64-.qcow2, machine/cp-1/configure, machine/cp-1/join and 19 more
          not begun: 3: machine/cp-1/start, machine/cp-1/talos and machine/cp-2/talos
        hint: the next run looks at what is unknown before it does anything, and goes on from there:
            ichor up
        ");
        let mut value = document(finish(&plan, &report, &[]));
        value["steps"].as_array_mut().expect("a list").retain(|step| step["step"] == "machine/cp-1/create");
        insta::assert_snapshot!(document::json(&value), @r#"
        {
          "event": "report",
          "verb": "up",
          "cluster": "homelab",
          "complete": false,
          "finished": false,
          "stopped": false,
          "exit_code": 7,
          "exit": "refused as unsafe",
          "took_ms": 72400,
          "counts": {
            "done": 27,
            "skipped": 0,
            "failed": 2,
            "refused": 1,
            "unknown": 1,
            "not_begun": 3
          },
          "next": "ichor up",
          "steps": [
            {
              "step": "machine/cp-1/create",
              "outcome": "failed",
              "message": "Proxmox answered 403: Permission check failed (/storage/local-lvm)",
              "hint": "grant it:\n    pveum acl modify",
              "by": null
            }
          ]
        }
        "#);
    }

    #[test]
    fn steps_that_were_all_done_are_not_yet_success() {
        let (plan, report) = report(&[]);
        let left = Finish { done: false, ..finish(&plan, &report, &[]) };
        let shown = shown(left);
        assert!(shown.starts_with("error: `up` of cluster `homelab` has done all its steps"), "{shown}");
        assert!(shown.contains("done: 34 of 34 steps") && shown.ends_with("    ichor up\n"), "{shown}");
        assert_eq!(document(left)["exit_code"], Exit::PartWay.code());
    }

    #[test]
    fn hundreds_of_failures_stay_readable() {
        let plan = fixture::plan_from_nothing(&fixture::crowd(300));
        let outcomes = plan.steps().iter().map(|step| {
            let same = step.id.as_str().ends_with("/create");
            let message = if same { "no space left".to_owned() } else { format!("{} broke", step.id) };
            (step.id.clone(), Outcome::Failed { message, hint: None })
        });
        let report = RunReport { outcomes: outcomes.collect(), stopped: false };
        let shown = shown(finish(&plan, &report, &[]));
        assert!(shown.lines().count() < 30, "{shown}");
        assert!(shown.contains("more reasons"), "{shown}");
    }

    #[test]
    fn exit_codes_follow_from_what_happened() {
        let after = |changes: &[(&str, Outcome)]| exit(&report(changes).1, true);
        assert_eq!(after(&[]), Exit::Done);
        assert_eq!(after(&[("cluster/pool", Outcome::Skipped)]), Exit::Done);
        assert_eq!(after(&[("cluster/pool", failed("x"))]), Exit::PartWay);
        assert_eq!(after(&[("cluster/pool", unknown())]), Exit::PartWay);
        assert_eq!(after(&[("cluster/pool", refused()), ("cluster/bootstrap", failed("x"))]), Exit::Refused);
        let mut nothing = RunReport::default();
        nothing.outcomes.insert(StepId::new("a"), failed("x"));
        nothing.outcomes.insert(StepId::new("b"), Outcome::Blocked { by: StepId::new("a") });
        assert_eq!(exit(&nothing, true), Exit::Failed);
        nothing.stopped = true;
        assert_eq!(exit(&nothing, true), Exit::Interrupted);
        nothing.outcomes.values_mut().for_each(|outcome| *outcome = Outcome::Done);
        assert_eq!(exit(&nothing, true), Exit::Done, "stopped when all was done");
        assert_eq!(exit(&nothing, false), Exit::Interrupted, "nobody has looked whether anything is left");
        assert_eq!(exit(&RunReport::default(), true), Exit::Done);
        assert_eq!(exit(&report(&[]).1, false), Exit::PartWay);
    }
}
