//! The plans, carried out on a model of the discovery, whole and broken off after every step.

use proptest::prelude::*;

use super::*;

const MODULE: &str = "mod-authtoken-2.17.0";
const SIDECAR: &str = "http://127.0.0.1:8071";
const DIRECT: &str = "http://mod-authtoken";

fn wish() -> Wish {
    Wish {
        module: MODULE.to_owned(),
        instance: format!("{MODULE}-auth-sidecar"),
        parking: true,
    }
}

fn entry(instance: &str, url: &str) -> Entry {
    wish().named(instance, url)
}

fn view(entries: &[Entry]) -> View {
    View {
        entries: entries.to_vec(),
        ..View::default()
    }
}

/// What Okapi would make of a step; `None` when it would refuse it.
fn carry_out(view: &mut View, step: &Step) -> Option<()> {
    match step {
        Step::Await(_) | Step::Call { .. } | Step::Health(_) => {}
        Step::Add(entry) | Step::Park(entry) => {
            let all = view.entries.iter().chain(&view.parked);
            if all.clone().any(|e| e.inst_id == entry.inst_id) {
                return None;
            }
            let list = match step {
                Step::Add(_) => &mut view.entries,
                _ => &mut view.parked,
            };
            list.push(entry.clone());
        }
        Step::Remove(entry) => view.entries.retain(|e| e.inst_id != entry.inst_id),
        Step::Forget(entry) => view.parked.retain(|e| e.inst_id != entry.inst_id),
    }
    Some(())
}

/// Panics when a step is impossible or leaves a module without an entry.
fn carry_out_all(view: &mut View, steps: &[Step]) {
    let had_one = !view.entries.is_empty();
    for step in steps {
        assert!(
            carry_out(view, step).is_some(),
            "{step:?} is refused: {view:?}"
        );
        assert!(
            !had_one || !view.entries.is_empty(),
            "no entry after {step:?} of {steps:?}"
        );
    }
}

#[test]
fn the_first_time_it_rehearses_adds_checks_parks_and_only_then_removes() {
    let direct = entry(MODULE, DIRECT);

    let steps = register(&view(std::slice::from_ref(&direct)), &wish(), SIDECAR).unwrap();

    let ours = wish().entry(SIDECAR);
    let rehearsal = wish().rehearsal(SIDECAR);
    assert_eq!(
        steps,
        [
            Step::Park(rehearsal.clone()),
            Step::Await(rehearsal.clone()),
            Step::Forget(rehearsal),
            Step::Add(ours.clone()),
            Step::Call {
                url: Some(SIDECAR.to_owned()),
                entries: 2
            },
            Step::Health(ours),
            Step::Park(wish().parked(&direct)),
            Step::Remove(direct),
            Step::Call {
                url: Some(SIDECAR.to_owned()),
                entries: 1
            },
        ]
    );
}

#[test]
fn the_second_time_it_only_looks() {
    let ours = wish().entry(SIDECAR);

    let steps = register(&view(std::slice::from_ref(&ours)), &wish(), SIDECAR).unwrap();

    assert_eq!(
        steps,
        [
            Step::Call {
                url: Some(SIDECAR.to_owned()),
                entries: 1
            },
            Step::Health(ours),
        ]
    );
}

#[test]
fn another_url_of_ours_is_bridged_and_never_parked() {
    let old = wish().entry("http://sidecar:8071");

    let steps = register(&view(std::slice::from_ref(&old)), &wish(), SIDECAR).unwrap();

    let bridge = wish().bridge(SIDECAR);
    let changes: Vec<&Step> = steps
        .iter()
        .filter(|s| matches!(s, Step::Add(_) | Step::Remove(_)))
        .collect();
    assert_eq!(
        changes,
        [
            &Step::Add(bridge.clone()),
            &Step::Remove(old.clone()),
            &Step::Add(wish().entry(SIDECAR)),
            &Step::Remove(bridge)
        ]
    );
    let records = [wish().parked(&old), wish().parked(&wish().bridge(SIDECAR))];
    assert!(
        !records.into_iter().any(|r| steps.contains(&Step::Park(r))),
        "{steps:?}"
    );
}

#[test]
fn kubernetes_entries_are_explained_not_fought() {
    let kube = entry("kube_10.1.2.3:8081", "http://10.1.2.3:8081");

    let refusal = register(&view(&[entry(MODULE, DIRECT), kube]), &wish(), SIDECAR).unwrap_err();

    let text = refusal.to_string();
    assert!(matches!(refusal, Refusal::Kubernetes(_)));
    for word in [
        "kube_10.1.2.3:8081",
        "app.kubernetes.io/version",
        "nothing is to be registered",
    ] {
        assert!(text.contains(word), "{word} is not in {text}");
    }
}

#[test]
fn a_process_that_okapi_launched_is_not_killed() {
    let mut launched = entry("a1b2", "http://okapi-host:9131");
    launched.node_id = Some("node1".to_owned());

    let refusal = register(&view(&[launched]), &wish(), SIDECAR).unwrap_err();

    assert!(matches!(refusal, Refusal::Launched(_)));
    assert!(
        refusal
            .to_string()
            .contains("a1b2 -> http://okapi-host:9131"),
        "{refusal}"
    );
}

#[test]
fn an_instance_id_of_another_module_is_named_before_anything_is_done() {
    let mut there = view(&[entry(MODULE, DIRECT)]);
    there
        .elsewhere
        .push((wish().instance, "mod-authtoken-2.16.0".to_owned()));

    let refusal = register(&there, &wish(), SIDECAR).unwrap_err();

    assert!(
        refusal.to_string().contains("mod-authtoken-2.16.0"),
        "{refusal}"
    );
}

#[test]
fn the_last_entry_is_not_removed_without_another() {
    let there = view(&[wish().entry(SIDECAR)]);

    let plain = unregister(&there, &wish(), &Restore::Nothing).unwrap_err();
    let unknown = unregister(&there, &wish(), &Restore::Records).unwrap_err();

    assert!(plain.to_string().contains("--restore"), "{plain}");
    assert!(unknown.to_string().contains("--direct-url"), "{unknown}");
}

#[test]
fn restoring_adds_first_and_forgets_last() {
    let direct = entry(MODULE, DIRECT);
    let ours = wish().entry(SIDECAR);
    let record = wish().parked(&direct);
    let mut there = view(std::slice::from_ref(&ours));
    there.parked.push(record.clone());

    let steps = unregister(&there, &wish(), &Restore::Records).unwrap();

    assert_eq!(
        steps,
        [
            Step::Add(direct.clone()),
            Step::Health(direct),
            Step::Remove(ours),
            Step::Call {
                url: None,
                entries: 1
            },
            Step::Forget(record)
        ]
    );
}

#[test]
fn addresses_given_by_hand_go_before_the_record() {
    let mut there = view(&[wish().entry(SIDECAR)]);
    there
        .parked
        .push(wish().parked(&entry(MODULE, "http://gone")));
    let urls = vec!["http://a".to_owned(), "http://b".to_owned()];

    let mut after = there.clone();
    let steps = unregister(&there, &wish(), &Restore::Urls(urls)).unwrap();
    carry_out_all(&mut after, &steps);

    assert_eq!(
        after,
        view(&[
            entry(MODULE, "http://a"),
            entry(&format!("{MODULE}-2"), "http://b")
        ])
    );
}

#[test]
fn a_sidecar_that_does_not_work_is_not_put_back_beside_a_direct_entry() {
    let direct = entry(MODULE, DIRECT);
    let ours = wish().entry(SIDECAR);

    let beside = without_url(&view(&[direct.clone(), ours.clone()]), SIDECAR);
    let alone = without_url(&view(std::slice::from_ref(&ours)), SIDECAR);

    assert_eq!(beside, view(&[direct]));
    assert_eq!(alone, view(&[ours]));
}

#[test]
fn what_others_added_meanwhile_is_left_alone() {
    let direct = entry(MODULE, DIRECT);
    let kube = entry("kube_10.1.2.3:8081", "http://10.1.2.3:8081");
    let found = view(std::slice::from_ref(&direct));
    let forth = register(&found, &wish(), SIDECAR).unwrap();
    let now = view(&[wish().entry(SIDECAR), kube]);

    let steps = back(&now, &found, &wish(), &touched(&forth, &found, &found));

    assert_eq!(
        steps,
        [Step::Add(direct), Step::Remove(wish().entry(SIDECAR))]
    );
}

/// Any discovery that an operator, or a run of ours that was killed, may have left.
fn some_entries() -> impl Strategy<Value = Vec<Entry>> {
    let ids = [
        MODULE.to_owned(),
        format!("{MODULE}-2"),
        wish().instance,
        wish().bridge_ids()[0].clone(),
        wish().bridge_ids()[1].clone(),
    ];
    let urls = [
        DIRECT,
        SIDECAR,
        "http://other:8081",
        "http://old-sidecar:8071",
    ];
    proptest::collection::btree_map(
        proptest::sample::select(ids.to_vec()),
        proptest::sample::select(urls.to_vec()),
        1..4,
    )
    .prop_map(|map| map.iter().map(|(id, url)| entry(id, url)).collect())
}

proptest! {
    #[test]
    fn from_anywhere_and_broken_off_anywhere_registering_ends_with_our_entry_alone(
        entries in some_entries(), broken_off in 0usize..16
    ) {
        let mut there = view(&entries);

        let first = register(&there, &wish(), SIDECAR).unwrap();
        carry_out_all(&mut there, &first[..broken_off.min(first.len())]);
        let second = register(&there, &wish(), SIDECAR).unwrap();
        carry_out_all(&mut there, &second);

        prop_assert_eq!(there.entries, vec![wish().entry(SIDECAR)]);
    }

    #[test]
    fn after_registering_the_record_brings_every_direct_entry_back(
        entries in some_entries(), broken_off in 0usize..16
    ) {
        let found = view(&entries);
        let direct = Sorted::of(&found, &wish(), SIDECAR).direct;
        prop_assume!(!direct.is_empty());
        let mut there = found.clone();

        let steps = register(&there, &wish(), SIDECAR).unwrap();
        carry_out_all(&mut there, &steps);
        let steps = unregister(&there, &wish(), &Restore::Records).unwrap();
        carry_out_all(&mut there, &steps[..broken_off.min(steps.len())]);
        let steps = unregister(&there, &wish(), &Restore::Records).unwrap();
        carry_out_all(&mut there, &steps);

        for entry in &direct {
            prop_assert!(there.entries.contains(entry), "{:?} is missing: {:?}", entry, there);
        }
        prop_assert_eq!(there.entries.len(), direct.len());
        prop_assert!(there.parked.is_empty());
    }

    #[test]
    fn from_anywhere_on_the_way_it_gets_back_to_what_was_found(
        entries in some_entries(), failed_after in 0usize..16, broken_off in 0usize..16
    ) {
        let found = view(&entries);
        let mut there = found.clone();
        let forth = register(&there, &wish(), SIDECAR).unwrap();
        carry_out_all(&mut there, &forth[..failed_after.min(forth.len())]);

        let touched = touched(&forth, &found, &found);
        let steps = back(&there, &found, &wish(), &touched);
        carry_out_all(&mut there, &steps[..broken_off.min(steps.len())]);
        let steps = back(&there, &found, &wish(), &touched);
        carry_out_all(&mut there, &steps);

        there.entries.sort_by(|a, b| a.inst_id.cmp(&b.inst_id));
        prop_assert_eq!(there, found);
    }

    #[test]
    fn a_failed_check_leaves_no_entry_that_leads_to_the_sidecar_beside_others(
        entries in some_entries(), failed_after in 0usize..16
    ) {
        let found = view(&entries);
        let goal = without_url(&found, SIDECAR);
        let mut there = found.clone();
        let forth = register(&there, &wish(), SIDECAR).unwrap();
        carry_out_all(&mut there, &forth[..failed_after.min(forth.len())]);

        let touched = touched(&forth, &found, &goal);
        let steps = back(&there, &goal, &wish(), &touched);
        carry_out_all(&mut there, &steps);

        there.entries.sort_by(|a, b| a.inst_id.cmp(&b.inst_id));
        prop_assert_eq!(there, goal);
    }
}
