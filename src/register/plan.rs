//! Which steps lead from the entries that are there to the ones that are wished for. Pure: no clock, no I/O.
//!
//! The rule that every plan keeps, after each of its steps: a module that had an entry has one. Okapi answers every request of
//! every tenant with 404 as soon as its auth module has none.
//!
//! The trap: Okapi picks one entry at random for each request, without asking whether anybody listens there. An entry is in
//! use from the moment it is added, and nobody is spared by another, healthy one.

use crate::okapi::Entry;

/// Entries whose instance ids begin like this come from Okapi's own Kubernetes discovery, which adds them again every 30 s (Okapi `KubernetesManager`).
const KUBERNETES: &str = "kube_";
/// Goes before the module id and the instance ids of entries that are kept out of use. No tenant has a module of such an id, so Okapi never picks them;
/// it stores them like any other entry, so they outlive this process and every pod.
const PARKED: &str = "parked-";

/// What the operator wishes for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wish {
    /// The auth module's id.
    pub module: String,
    /// The instance id of our entry.
    pub instance: String,
    /// Whether entries may be kept out of use under an id that is no module's.
    pub parking: bool,
}

impl Wish {
    /// The module id under which entries are kept out of use.
    pub(crate) fn parked_module(&self) -> String {
        format!("{PARKED}{}", self.module)
    }

    /// Our entry.
    pub(crate) fn entry(&self, url: &str) -> Entry {
        self.named(&self.instance, url)
    }

    /// An entry like ours, out of use, by which every Okapi pod can be asked whether it reaches a sidecar.
    pub(crate) fn rehearsal(&self, url: &str) -> Entry {
        Entry {
            srvc_id: self.parked_module(),
            inst_id: format!("{}-rehearsal", self.instance),
            url: Some(url.to_owned()),
            node_id: None,
        }
    }

    /// Stands in while our entry is exchanged: Okapi cannot change an entry, only delete and add.
    fn bridge(&self, url: &str) -> Entry {
        self.named(&self.bridge_ids()[0], url)
    }

    /// Instance ids that stand in for ours on the way forth, and on the way back.
    fn bridge_ids(&self) -> [String; 2] {
        [
            format!("{}-moving", self.instance),
            format!("{}-moving-back", self.instance),
        ]
    }

    fn named(&self, instance: &str, url: &str) -> Entry {
        Entry {
            srvc_id: self.module.clone(),
            inst_id: instance.to_owned(),
            url: Some(url.to_owned()),
            node_id: None,
        }
    }

    /// The record of an entry that is taken out of use.
    fn parked(&self, entry: &Entry) -> Entry {
        Entry {
            srvc_id: self.parked_module(),
            inst_id: format!("{PARKED}{}", entry.inst_id),
            url: entry.url.clone(),
            node_id: None,
        }
    }

    /// The entry that a record stands for; `None` for a rehearsal's.
    fn unparked(&self, record: &Entry) -> Option<Entry> {
        let instance = record.inst_id.strip_prefix(PARKED)?;
        Some(Entry {
            srvc_id: self.module.clone(),
            inst_id: instance.to_owned(),
            url: record.url.clone(),
            node_id: None,
        })
    }
}

/// What the discovery holds of one module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct View {
    /// The module's entries: Okapi picks among these.
    pub entries: Vec<Entry>,
    /// Records of entries that were taken out of use, and rehearsals.
    pub parked: Vec<Entry>,
    /// Instance ids that other modules use.
    pub elsewhere: Vec<(String, String)>,
}

impl View {
    /// Sorts the whole discovery by what it means for `wish`.
    pub(crate) fn of(all: Vec<Entry>, wish: &Wish) -> Self {
        let mut view = Self::default();
        let parked = wish.parked_module();
        for entry in all {
            if entry.srvc_id == wish.module {
                view.entries.push(entry);
            } else if entry.srvc_id == parked {
                view.parked.push(entry);
            } else {
                view.elsewhere.push((entry.inst_id, entry.srvc_id));
            }
        }
        view
    }

    /// The module's entry of that instance id.
    pub(crate) fn entry(&self, instance: &str) -> Option<&Entry> {
        self.entries.iter().find(|e| e.inst_id == instance)
    }
}

/// One step. Each can be carried out again without harm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Wait until the Okapi pods reach this instance, which is out of use.
    Await(Entry),
    /// Add an entry; from here on it is in use.
    Add(Entry),
    /// Make real calls and see that none fails.
    Call {
        /// The address that must have been met; `None`: any.
        url: Option<String>,
        /// How many entries there are to pick from.
        entries: usize,
    },
    /// Ask the Okapi pods whether they reach this instance.
    Health(Entry),
    /// Keep a record of an entry, in the discovery, out of use.
    Park(Entry),
    /// Remove an entry.
    Remove(Entry),
    /// Remove a record.
    Forget(Entry),
}

/// Why nothing may be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// Okapi's own discovery supplies entries.
    #[error(
        "Okapi's own Kubernetes discovery supplies {}: it looks at the namespace's Endpoints every 30 s and would add such an entry again after every removal, so part of all requests would go past the sidecar for ever. \
         Sidecar in Okapi's pod, or alone: make the Service of mod-authtoken invisible to it (take its label app.kubernetes.io/version away, or give its port another name than http or https), wait until the entry is gone, then register again. \
         Sidecar in mod-authtoken's pod: nothing is to be registered; let the Service's port named http lead to the sidecar's port, and Okapi finds it by itself.", list(.0)
    )]
    Kubernetes(Vec<Entry>),
    /// Okapi launched an instance itself.
    #[error(
        "Okapi launched {} itself: to remove that entry is to stop the process, and the sidecar needs it. Run mod-authtoken outside Okapi's deployment, register it by its URL, undeploy the launched one, then register the sidecar", list(.0)
    )]
    Launched(Vec<Entry>),
    /// An instance id that is needed belongs to another module.
    #[error(
        "instance id {instance:?} is already in use for module {module:?}, and instance ids are unique over all modules: remove that entry, or choose another with --instance-id"
    )]
    Taken {
        /// The instance id.
        instance: String,
        /// Whose it is.
        module: String,
    },
    /// To remove our entry would leave none.
    #[error(
        "{instance} is the only entry of {module}: without it every request would be answered 404. Put the direct entries back with --restore"
    )]
    LastEntry {
        /// Our instance id.
        instance: String,
        /// The module.
        module: String,
    },
    /// Nobody knows where the auth module listens.
    #[error(
        "no direct entry of {module} is there and none is on record: say where mod-authtoken listens with --direct-url, e.g. --direct-url http://mod-authtoken"
    )]
    NoRecord {
        /// The module.
        module: String,
    },
}

/// Steps to have Okapi ask the sidecar at `url`, and nobody else.
///
/// # Errors
/// When entries are there that cannot be taken out of use, or an instance id is taken.
pub(crate) fn register(view: &View, wish: &Wish, url: &str) -> Result<Vec<Step>, Refusal> {
    let found = Sorted::of(view, wish, url);
    refuse_unmovable(&found.direct)?;
    let bridge = wish.bridge(url);
    let records: Vec<Entry> = found.direct.iter().map(|e| wish.parked(e)).collect();
    let parked = records.iter().map(|r| &r.inst_id);
    refuse_taken(
        view,
        [&wish.instance, &bridge.inst_id].into_iter().chain(parked),
    )?;

    let mut steps = Vec::new();
    if wish.parking && !is_in_use(view, url) {
        let rehearsal = wish.rehearsal(url);
        park(view, rehearsal.clone(), &mut steps);
        steps.push(Step::Await(rehearsal.clone()));
        steps.push(Step::Forget(rehearsal));
    }
    let mut doubles = found.doubles;
    let mut strays = found.strays;
    let mut entries = view.entries.len();
    match view.entry(&wish.instance) {
        Some(ours) if leads_to(ours, url) => {}
        None => {
            steps.push(Step::Add(wish.entry(url)));
            entries += 1;
        }
        Some(old) => {
            if doubles.is_empty() {
                if let Some(at) = strays.iter().position(|e| e.inst_id == bridge.inst_id) {
                    steps.push(Step::Remove(strays.remove(at)));
                    entries -= 1;
                }
                entries += 1;
                steps.push(Step::Add(bridge.clone()));
                steps.push(Step::Call {
                    url: Some(url.to_owned()),
                    entries,
                });
                doubles.push(bridge);
            }
            steps.push(Step::Remove(old.clone()));
            steps.push(Step::Add(wish.entry(url)));
        }
    }
    steps.push(Step::Call {
        url: Some(url.to_owned()),
        entries,
    });
    steps.push(Step::Health(wish.entry(url)));

    if wish.parking {
        for entry in &found.direct {
            park(view, wish.parked(entry), &mut steps);
        }
    }
    let removals: Vec<Entry> = [found.direct, doubles, strays].concat();
    if !removals.is_empty() {
        let left = entries - removals.len();
        steps.extend(removals.into_iter().map(Step::Remove));
        steps.push(Step::Call {
            url: Some(url.to_owned()),
            entries: left,
        });
    }
    Ok(steps)
}

/// A module's entries beside ours, by what is to become of them.
struct Sorted {
    /// Lead to the auth module, or so we must think.
    direct: Vec<Entry>,
    /// Lead to the sidecar under another name, and can be removed.
    doubles: Vec<Entry>,
    /// Left by a run that was killed while it exchanged our entry; they lead to a sidecar of before.
    strays: Vec<Entry>,
}

impl Sorted {
    fn of(view: &View, wish: &Wish, url: &str) -> Self {
        let mut sorted = Self {
            direct: Vec::new(),
            doubles: Vec::new(),
            strays: Vec::new(),
        };
        for entry in view.entries.iter().filter(|e| e.inst_id != wish.instance) {
            let entry = entry.clone();
            if leads_to(&entry, url) {
                if entry.node_id.is_none() {
                    sorted.doubles.push(entry);
                }
            } else if wish.bridge_ids().contains(&entry.inst_id) {
                sorted.strays.push(entry);
            } else {
                sorted.direct.push(entry);
            }
        }
        sorted
    }
}

/// How `unregister` may make sure that an entry remains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Restore {
    /// Not at all: there must be one already.
    Nothing,
    /// From the records that `register` left.
    Records,
    /// From these addresses.
    Urls(Vec<String>),
}

/// Steps to have Okapi ask the auth module itself again, and the sidecar no more.
///
/// # Errors
/// When no entry would remain, or an instance id is taken.
pub(crate) fn unregister(
    view: &View,
    wish: &Wish,
    restore: &Restore,
) -> Result<Vec<Step>, Refusal> {
    let ours = view.entry(&wish.instance).cloned();
    let our_url = ours.as_ref().and_then(|e| e.url.clone());
    let is_ours = |e: &Entry| {
        e.inst_id == wish.instance
            || wish.bridge_ids().contains(&e.inst_id)
            || (e.url.is_some() && e.url == our_url)
    };
    let (mine, direct): (Vec<Entry>, Vec<Entry>) = view.entries.iter().cloned().partition(is_ours);

    let missing: Vec<Entry> = wanted(view, wish, restore)
        .into_iter()
        .filter(|w| !direct.iter().any(|d| is_there(d, w, restore)))
        .filter(|w| our_url.is_none() || w.url != our_url)
        .collect();
    if direct.is_empty() && missing.is_empty() {
        return Err(match restore {
            Restore::Nothing if !mine.is_empty() => Refusal::LastEntry {
                instance: wish.instance.clone(),
                module: wish.module.clone(),
            },
            Restore::Nothing | Restore::Records | Restore::Urls(_) => Refusal::NoRecord {
                module: wish.module.clone(),
            },
        });
    }
    refuse_taken(view, missing.iter().map(|e| &e.inst_id))?;

    let changes = !mine.is_empty() || !missing.is_empty();
    let left = [direct, missing.clone()].concat();
    let entries = left.len();
    let mut steps: Vec<Step> = missing.into_iter().map(Step::Add).collect();
    if changes {
        steps.extend(left.into_iter().map(Step::Health));
        steps.extend(mine.into_iter().map(Step::Remove));
        steps.push(Step::Call { url: None, entries });
    }
    steps.extend(view.parked.iter().cloned().map(Step::Forget));
    Ok(steps)
}

/// Steps from whatever is there now back to `goal`, after a failure half way. What this run had no business with is left alone: somebody
/// else may be at work, or Okapi's own discovery.
pub(crate) fn back(now: &View, goal: &View, wish: &Wish, touched: &[String]) -> Vec<Step> {
    let is_ours = |e: &&Entry| touched.contains(&e.inst_id);
    let missing: Vec<&Entry> = goal
        .entries
        .iter()
        .filter(is_ours)
        .filter(|g| now.entry(&g.inst_id).is_none())
        .collect();
    let kept = now.entries.iter().filter(|e| goal.entries.contains(e));
    let mut good_in_use = kept.count() + missing.len() > 0;
    let mut steps: Vec<Step> = missing.into_iter().cloned().map(Step::Add).collect();

    let changed = goal.entries.iter().filter(is_ours).filter_map(|wanted| {
        let there = now.entry(&wanted.inst_id)?;
        (there != wanted).then_some((there, wanted))
    });
    for (there, wanted) in changed {
        let mut bridge = wanted.clone();
        bridge.inst_id.clone_from(&wish.bridge_ids()[1]);
        let bridged = !good_in_use;
        if bridged && now.entry(&bridge.inst_id).is_none() {
            steps.push(Step::Add(bridge.clone()));
        }
        steps.push(Step::Remove(there.clone()));
        steps.push(Step::Add(wanted.clone()));
        if bridged {
            steps.push(Step::Remove(bridge));
        }
        good_in_use = true;
    }
    let own = wish.bridge_ids();
    let surplus = now
        .entries
        .iter()
        .filter(|e| touched.contains(&e.inst_id) || own.contains(&e.inst_id))
        .filter(|e| goal.entry(&e.inst_id).is_none());
    let surplus: Vec<Step> = surplus
        .cloned()
        .map(Step::Remove)
        .filter(|step| !steps.contains(step))
        .collect();
    steps.extend(surplus);
    let records = now.parked.iter().filter(is_ours);
    let records = records.filter(|e| !goal.parked.contains(e));
    steps.extend(records.cloned().map(Step::Forget));
    steps
}

/// The instance ids that these steps have to do with, and those that `goal` gives up.
pub(crate) fn touched(steps: &[Step], found: &View, goal: &View) -> Vec<String> {
    let changed = steps.iter().filter_map(|step| match step {
        Step::Add(entry) | Step::Park(entry) | Step::Remove(entry) | Step::Forget(entry) => {
            Some(entry)
        }
        Step::Await(_) | Step::Call { .. } | Step::Health(_) => None,
    });
    let given_up = found.entries.iter().filter(|e| !goal.entries.contains(e));
    changed
        .chain(given_up)
        .map(|entry| entry.inst_id.clone())
        .collect()
}

/// Whether a change has been made already.
pub(crate) fn is_made(step: &Step, view: &View) -> bool {
    match step {
        Step::Add(entry) => view.entries.contains(entry),
        Step::Park(entry) => view.parked.contains(entry),
        Step::Remove(entry) => view.entry(&entry.inst_id).is_none(),
        Step::Forget(entry) => view.parked.iter().all(|e| e.inst_id != entry.inst_id),
        Step::Await(_) | Step::Call { .. } | Step::Health(_) => false,
    }
}

/// What to go back to when the sidecar turned out not to work: as it was found, but without the sidecar where something else is there.
pub(crate) fn without_url(found: &View, url: &str) -> View {
    let mut goal = found.clone();
    if goal.entries.iter().any(|e| !leads_to(e, url)) {
        goal.entries.retain(|e| !leads_to(e, url));
    }
    goal
}

/// Whether an entry leads to this address already.
pub(crate) fn is_in_use(view: &View, url: &str) -> bool {
    view.entries.iter().any(|entry| leads_to(entry, url))
}

fn leads_to(entry: &Entry, url: &str) -> bool {
    entry.url.as_deref() == Some(url)
}

/// Two records may have the same address and both belong back; an address given by hand is served by any entry that has it.
fn is_there(direct: &Entry, wanted: &Entry, restore: &Restore) -> bool {
    direct.inst_id == wanted.inst_id
        || match restore {
            Restore::Nothing | Restore::Records => false,
            Restore::Urls(_) => direct.url == wanted.url,
        }
}

/// What ought to be there when the sidecar is gone.
fn wanted(view: &View, wish: &Wish, restore: &Restore) -> Vec<Entry> {
    match restore {
        Restore::Nothing => Vec::new(),
        Restore::Records => view
            .parked
            .iter()
            .filter_map(|r| wish.unparked(r))
            .collect(),
        // FOLIO's own registration jobs give the first instance the module's id.
        Restore::Urls(urls) => urls
            .iter()
            .enumerate()
            .map(|(at, url)| match at {
                0 => wish.named(&wish.module, url),
                _ => wish.named(&format!("{}-{}", wish.module, at + 1), url),
            })
            .collect(),
    }
}

fn park(view: &View, record: Entry, steps: &mut Vec<Step>) {
    match view.parked.iter().find(|r| r.inst_id == record.inst_id) {
        Some(there) if there.url == record.url => return,
        Some(outdated) => steps.push(Step::Forget(outdated.clone())),
        None => {}
    }
    steps.push(Step::Park(record));
}

fn refuse_unmovable(others: &[Entry]) -> Result<(), Refusal> {
    let those = |test: fn(&Entry) -> bool| -> Vec<Entry> {
        others.iter().filter(|e| test(e)).cloned().collect()
    };
    let kubernetes = those(|e| e.inst_id.starts_with(KUBERNETES));
    if !kubernetes.is_empty() {
        return Err(Refusal::Kubernetes(kubernetes));
    }
    let launched = those(|e| e.node_id.is_some());
    if !launched.is_empty() {
        return Err(Refusal::Launched(launched));
    }
    Ok(())
}

fn refuse_taken<'a>(view: &View, needed: impl Iterator<Item = &'a String>) -> Result<(), Refusal> {
    for instance in needed {
        if let Some((_, module)) = view.elsewhere.iter().find(|(taken, _)| taken == instance) {
            return Err(Refusal::Taken {
                instance: instance.clone(),
                module: module.clone(),
            });
        }
    }
    Ok(())
}

/// `a -> http://b and c -> http://d`
fn list(entries: &[Entry]) -> String {
    let shown: Vec<String> = entries.iter().map(show).collect();
    shown.join(" and ")
}

/// An entry as people see it.
pub(crate) fn show(entry: &Entry) -> String {
    let url = entry.url.as_deref().unwrap_or("no address");
    format!("{} -> {url}", entry.inst_id)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
