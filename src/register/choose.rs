//! Which module id is meant when none was given. Pure.

use std::fmt;

use crate::okapi::Entry;

/// Why no module id could be chosen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ChoiceError {
    /// The id that was given is none of Okapi's.
    #[error("Okapi knows no module {wanted:?}; {}", candidates(.known, "it knows"))]
    Unknown {
        /// The id that was given.
        wanted: String,
        /// Ids that could have been meant.
        known: Vec<String>,
    },
    /// There is nothing to choose from.
    #[error(
        "Okapi knows no module named {name:?}; name the auth module with --module-name or --module-id"
    )]
    None {
        /// The module's name.
        name: String,
    },
    /// The tenant does not use such a module.
    #[error(
        "no version of {name} is enabled for tenant {tenant:?}; name another tenant with --tenant, or the module with --module-id"
    )]
    NotEnabled {
        /// The module's name, or its id.
        name: String,
        /// The tenant.
        tenant: String,
    },
    /// There is more than one.
    #[error("several versions could be meant: {}; choose one with --module-id, or name a tenant that uses it with --tenant", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    Ambiguous(Vec<Candidate>),
}

/// A version that could be meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// Its id.
    pub module: String,
    /// How many entries the discovery has of it.
    pub entries: usize,
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.entries {
            0 => write!(f, "{} (not running)", self.module),
            1 => write!(f, "{} (1 entry)", self.module),
            n => write!(f, "{} ({n} entries)", self.module),
        }
    }
}

/// Whether `id` is a version of the module named `name`: a number follows the name.
pub(crate) fn is_version_of(id: &str, name: &str) -> bool {
    id.strip_prefix(name)
        .and_then(|rest| rest.strip_prefix('-'))
        .is_some_and(|version| version.starts_with(|c: char| c.is_ascii_digit()))
}

/// The version that a tenant uses.
///
/// # Errors
/// When it uses none, or several.
pub(crate) fn enabled(enabled: &[String], name: &str, tenant: &str) -> Result<String, ChoiceError> {
    let mut versions: Vec<&String> = enabled
        .iter()
        .filter(|id| is_version_of(id, name))
        .collect();
    match (versions.pop(), versions.is_empty()) {
        (Some(only), true) => Ok(only.clone()),
        (None, _) => Err(ChoiceError::NotEnabled {
            name: name.to_owned(),
            tenant: tenant.to_owned(),
        }),
        (Some(last), false) => {
            versions.push(last);
            let unused = |id: &String| Candidate {
                module: id.clone(),
                entries: 0,
            };
            Err(ChoiceError::Ambiguous(
                versions.into_iter().map(unused).collect(),
            ))
        }
    }
}

/// The only version that Okapi knows, or else the only one that runs: Okapi keeps the descriptors of all versions it ever had.
///
/// # Errors
/// When there is none, or more than one that could be meant.
pub(crate) fn known(
    known: &[String],
    name: &str,
    entries: &[Entry],
) -> Result<String, ChoiceError> {
    let candidates: Vec<Candidate> = known
        .iter()
        .filter(|id| is_version_of(id, name))
        .map(|id| Candidate {
            module: id.clone(),
            entries: entries.iter().filter(|e| e.srvc_id == *id).count(),
        })
        .collect();
    let running: Vec<&Candidate> = candidates.iter().filter(|c| c.entries > 0).collect();
    match (candidates.as_slice(), running.as_slice()) {
        ([], _) => Err(ChoiceError::None {
            name: name.to_owned(),
        }),
        ([only], _) => Ok(only.module.clone()),
        (_, [only]) => Ok(only.module.clone()),
        (_, _) => Err(ChoiceError::Ambiguous(candidates)),
    }
}

fn candidates(known: &[String], verb: &str) -> String {
    if known.is_empty() {
        "nor any that is named like it".to_owned()
    } else {
        format!("{verb} {}", known.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[&str]) -> Vec<String> {
        ids.iter().map(|id| (*id).to_owned()).collect()
    }

    fn entry(module: &str) -> Entry {
        Entry {
            srvc_id: module.to_owned(),
            inst_id: module.to_owned(),
            url: Some("http://mod-authtoken".to_owned()),
            node_id: None,
        }
    }

    #[test]
    fn a_version_is_the_name_and_a_number() {
        assert!(is_version_of("mod-authtoken-2.17.0", "mod-authtoken"));
        assert!(is_version_of(
            "mod-authtoken-2.18.0-SNAPSHOT.163",
            "mod-authtoken"
        ));
        assert!(!is_version_of("mod-authtoken-extra-1.0.0", "mod-authtoken"));
        assert!(!is_version_of("mod-authtoken", "mod-authtoken"));
        assert!(!is_version_of(
            "parked-mod-authtoken-2.17.0",
            "mod-authtoken"
        ));
    }

    #[test]
    fn the_tenants_version_is_the_one() {
        let all = ids(&["mod-users-19.0.0", "mod-authtoken-2.17.0", "okapi-6.2.1"]);

        assert_eq!(
            enabled(&all, "mod-authtoken", "diku"),
            Ok("mod-authtoken-2.17.0".to_owned())
        );
        let none = enabled(&all, "mod-authsource", "diku").unwrap_err();
        assert!(none.to_string().contains("diku"), "{none}");
    }

    #[test]
    fn of_many_known_versions_the_running_one_is_meant() {
        let all = ids(&["mod-authtoken-2.16.0", "mod-authtoken-2.17.0"]);

        let chosen = known(&all, "mod-authtoken", &[entry("mod-authtoken-2.16.0")]);

        assert_eq!(chosen, Ok("mod-authtoken-2.16.0".to_owned()));
    }

    #[test]
    fn two_that_run_are_listed_and_none_is_chosen() {
        let all = ids(&[
            "mod-authtoken-2.15.1",
            "mod-authtoken-2.16.0",
            "mod-authtoken-2.17.0",
        ]);
        let entries = [entry("mod-authtoken-2.16.0"), entry("mod-authtoken-2.17.0")];

        let error = known(&all, "mod-authtoken", &entries)
            .unwrap_err()
            .to_string();

        for part in [
            "mod-authtoken-2.15.1 (not running)",
            "mod-authtoken-2.16.0 (1 entry)",
            "--module-id",
        ] {
            assert!(error.contains(part), "{part} is not in {error}");
        }
    }
}
