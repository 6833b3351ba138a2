//! The safety protocol between jobs and deletion, model-checked.
#[path = "protocol_model/collector.rs"]
mod collector;
#[path = "protocol_model/job.rs"]
mod job;
#[path = "protocol_model/model.rs"]
mod model;
#[path = "protocol_model/rules.rs"]
mod rules;
#[path = "protocol_model/scenario.rs"]
mod scenario;
#[path = "protocol_model/sets.rs"]
mod sets;
#[path = "protocol_model/state.rs"]
mod state;

use model::*;
use rules::*;
use scenario::*;
use sets::*;
use stateright::{Checker, Model};

#[test]
fn explore() {

    let d = Plan { start: Start::Uploaded, left_over: 1, ..Plan::BACKUP };
    let v = Plan::VERSION;
    let b = Plan::BACKUP;
    let mut scenarios = vec![];
    for g in 1..=2 {
        scenarios.push((format!("chain/{g}"), Scenario::new(&[v, b.on(0), b.on(1)], g)));
        scenarios.push((format!("two on one/{g}"), Scenario::new(&[v, b.on(0), b.on(0)], g)));
        scenarios.push((format!("two adopt one/{g}"), Scenario::new(&[d, b.adopting(&[0]), b.adopting(&[0])], g)));
        scenarios.push((format!("adopt chain/{g}"), Scenario::new(&[d, b.adopting(&[0]), b.adopting(&[0,1])], g)));
        scenarios.push((format!("adopt and base/{g}"), Scenario::new(&[v, d.on(0), b.on(0).adopting(&[1])], g)));
        scenarios.push((format!("on adopted/{g}"), Scenario::new(&[d, b.adopting(&[0]), b.on(0)], g)));
        scenarios.push((format!("on adopter/{g}"), Scenario::new(&[d, b.adopting(&[0]), b.on(1)], g)));
        scenarios.push((format!("readers/{g}"), Scenario::new(&[v, b.on(0), Plan::reader(0), Plan::reader(1)], g)));
        scenarios.push((format!("late commit/{g}"), Scenario { unanswered_commit: Jobs::of(&[0]), late_fences: true, ..Scenario::new(&[d, b.adopting(&[0])], g)}));
        scenarios.push((format!("late commit2/{g}"), Scenario { unanswered_commit: Jobs::of(&[0]), late_fences: true, ..Scenario::new(&[d, b.on(0)], g)}));
        scenarios.push((format!("late lease/{g}"), Scenario { unanswered_lease: Jobs::of(&[0]), unanswered_commit: Jobs::of(&[0]), ..Scenario::new(&[b, b.adopting(&[0])], g)}));
    }
    for (name, s) in scenarios {
        let started = std::time::Instant::now();
        let checker = Protocol::new(s, Rules::ALL).checker().symmetry().target_state_count(12_000_000).spawn_dfs().join();
        eprintln!("{name}: {} unique, {} total, depth {}, {:?}", checker.unique_state_count(), checker.state_count(), checker.max_depth(), started.elapsed());
        for (name, path) in checker.discoveries() {
            eprintln!("  {name}");
            for a in path.into_actions() { eprintln!("    {a:?}"); }
        }
    }
}

#[test]
fn broken() {
    use Rule::*;
    let d = Plan { start: Start::Uploaded, left_over: 1, ..Plan::BACKUP };
    let v = Plan::VERSION;
    let b = Plan::BACKUP;
    let rules = [AdoptedLeased, RegisterThenLease, LeaseRemovedFirst, PublishFirst];
    for rule in rules {
        for g in 1..=2 {
            let scenarios = [
                (format!("base/{g}"), Scenario::new(&[v, b.on(0)], g)),
                (format!("adopt/{g}"), Scenario::new(&[d, b.adopting(&[0])], g)),
                (format!("chain/{g}"), Scenario::new(&[v, b.on(0), b.on(1)], g)),
                (format!("adopt chain/{g}"), Scenario::new(&[d, b.adopting(&[0]), b.adopting(&[1])], g)),
                (format!("late commit/{g}"), Scenario { unanswered_commit: Jobs::of(&[0]), late_fences: true, ..Scenario::new(&[d, b.adopting(&[0])], g)}),
                (format!("late lease/{g}"), Scenario { unanswered_lease: Jobs::of(&[0]), unanswered_commit: Jobs::of(&[0]), ..Scenario::new(&[b, b.adopting(&[0])], g)}),
                (format!("reader/{g}"), Scenario::new(&[v, Plan::reader(0)], g)),
            ];
            for (name, s) in scenarios {
                let started = std::time::Instant::now();
                let checker = Protocol::new(s, Rules::without(rule)).checker().target_state_count(3_000_000).finish_when(stateright::HasDiscoveries::AllOf([WHOLE].into())).spawn_bfs().join();
                let found: Vec<_> = checker.discoveries().into_iter().map(|(n, p)| format!("{n}@{}", p.into_actions().len())).collect();
                if !found.is_empty() {
                    eprintln!("{rule:?} {name}: {} unique, {:?} {found:?}", checker.unique_state_count(), started.elapsed());
                }
            }
        }
    }
}
