//! Where a session's tools work.
//!
//! Owns: what a path in a call means, where files may be written, and which environment variables
//! are ours alone. Never: confines what a command does; where that matters, `bash = "deny"`.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    sync::Arc,
};

use agent_core::ToolError;
use etcetera::BaseStrategy;

use super::{
    off_limits::{self, OffLimits},
    outputs::Outputs,
    policy::ToolPolicy,
    resolve,
    session_outputs::SessionOutputs,
};

/// A session's directory and what its tools may touch.
#[derive(Debug)]
pub struct Workspace {
    directory: PathBuf,
    home: Option<PathBuf>,
    temp: PathBuf,
    policy: ToolPolicy,
    secret_variables: Vec<String>,
    outputs: Arc<SessionOutputs>,
    /// Held by the call that looks for its file's queue; see [`super::file_locks`].
    pub(super) queueing: tokio::sync::Mutex<()>,
}

/// A file that may be written: where the path leads, symlinks followed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Target(pub(super) PathBuf);

impl Workspace {
    /// A workspace in an absolute directory. `secret_variables` are the names of environment
    /// variables that commands must not see, besides those that are secret anyway. Outputs that are
    /// too long are in the temp directory, as long as the workspace lives.
    pub fn new(directory: PathBuf, policy: ToolPolicy, secret_variables: Vec<String>) -> Self {
        Workspace {
            directory,
            home: std::env::home_dir().filter(|home| home.is_absolute()),
            temp: std::env::temp_dir(),
            policy,
            secret_variables,
            outputs: Outputs::new(None).of_session("session"),
            queueing: Default::default(),
        }
    }

    /// Keeps outputs that are too long in these.
    pub(crate) fn with_outputs(self, outputs: Arc<SessionOutputs>) -> Self {
        Workspace { outputs, ..self }
    }

    /// The session's directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// What the tools may do.
    pub fn policy(&self) -> &ToolPolicy {
        &self.policy
    }

    /// Where output that is too long for the model is put.
    pub(super) fn outputs(&self) -> &Arc<SessionOutputs> {
        &self.outputs
    }

    /// The absolute form of a path in a call: relative to the directory, `~` for the home.
    pub(super) fn locate(&self, path: &str) -> PathBuf {
        self.absolute(Path::new(path))
    }

    fn absolute(&self, path: &Path) -> PathBuf {
        match (path.strip_prefix("~"), &self.home) {
            (Ok(rest), Some(home)) if rest.as_os_str().is_empty() => home.clone(),
            (Ok(rest), Some(home)) => home.join(rest),
            _ => self.directory.join(path),
        }
    }

    /// Where a file may be written. Looks at the file system, so not for the runtime's threads.
    ///
    /// # Errors
    /// The path leads nowhere, to a place that the policy does not open, or to one that no session may
    /// write to.
    pub(super) fn target(&self, path: &str) -> Result<Target, ToolError> {
        if path.is_empty() {
            return Err(ToolError::new("The path is empty; give the path of a file."));
        }
        // The components of a path forget what its end says.
        if path.ends_with('/') || path.ends_with("/.") {
            return Err(ToolError::new(format!(
                "{path} names a directory; give the path of a file."
            )));
        }
        let place = resolve::follow(&self.locate(path))
            .map_err(|error| ToolError::new(format!("Cannot follow the path {path}: {error}.")))?;
        let roots = self.write_roots();
        if !roots.iter().any(|root| place.starts_with(root)) {
            return Err(ToolError::new(outside(path, &place, &roots)));
        }
        match self.off_limits(path, &place) {
            Some(why) => {
                let leads = leads(path, &place);
                Err(ToolError::new(format!("{path}{leads} was not written: {why}")))
            }
            None => Ok(Target(place)),
        }
    }

    fn off_limits(&self, path: &str, place: &Path) -> Option<OffLimits> {
        let config = etcetera::choose_base_strategy().ok().map(|user| user.config_dir());
        let settings = || {
            let settings = off_limits::settings(self.home.as_deref(), config.as_deref());
            settings.iter().any(|it| place.starts_with(it)).then_some(OffLimits::Settings)
        };
        off_limits::of(Path::new(path), place)
            .or_else(settings)
            .or_else(|| off_limits::by_another_name(place, &self.directory))
    }

    fn write_roots(&self) -> Vec<PathBuf> {
        let default = [PathBuf::from("."), self.temp.clone()];
        let roots = self.policy.write_roots.as_deref().unwrap_or(&default);
        // A root that cannot be followed opens nothing.
        roots.iter().filter_map(|root| resolve::follow(&self.absolute(root)).ok()).collect()
    }

    /// Whether an environment variable must stay out of a command's environment.
    pub(super) fn is_secret(&self, variable: &OsStr) -> bool {
        let Some(name) = variable.to_str() else { return false };
        matches!(name, "OPENAI_API_KEY" | "ANTHROPIC_API_KEY")
            || name.starts_with("AGENT_DAEMON_") && name.contains("TOKEN")
            || self.secret_variables.iter().any(|secret| secret == name)
    }

    /// The names of those variables that are set.
    pub(super) fn secrets_set(&self) -> Vec<OsString> {
        std::env::vars_os().map(|(name, _)| name).filter(|name| self.is_secret(name)).collect()
    }
}

/// Where a path leads, unless it says so itself.
fn leads(path: &str, place: &Path) -> String {
    match Path::new(path) == place {
        true => String::new(),
        false => format!(" (which leads to {})", place.display()),
    }
}

fn outside(path: &str, place: &Path, roots: &[PathBuf]) -> String {
    let leads = leads(path, place);
    let roots = match roots {
        [] => "nothing".to_owned(),
        roots => {
            let roots: Vec<_> = roots.iter().map(|root| root.display().to_string()).collect();
            roots.join(" and ")
        }
    };
    format!(
        "{path}{leads} was not written: it is outside of where this session may write, which is \
         {roots}. Whoever configures the daemon can add a directory to `write_roots` in the \
         `[tools]` table."
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::symlink;

    use super::*;

    fn workspace(directory: &Path, policy: &str) -> Workspace {
        let policy = toml::from_str(policy).unwrap();
        let mut workspace = Workspace::new(directory.to_owned(), policy, vec!["LOCAL_KEY".into()]);
        workspace.home = Some("/home/someone".into());
        workspace
    }

    #[test]
    fn paths_mean_what_people_expect() {
        let workspace = workspace(Path::new("/project"), "");
        const CASES: &[(&str, &str)] = &[
            ("a.txt", "/project/a.txt"),
            ("./a.txt", "/project/./a.txt"),
            ("/etc/hosts", "/etc/hosts"),
            ("~", "/home/someone"),
            ("~/a", "/home/someone/a"),
            ("~other", "/project/~other"),
            ("a/~", "/project/a/~"),
        ];
        for (path, place) in CASES {
            assert_eq!(workspace.locate(path), Path::new(place), "{path}");
        }
    }

    #[test]
    fn writing_is_confined_through_symlinks() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        for directory in ["project/inner", "elsewhere"] {
            std::fs::create_dir_all(root.join(directory)).unwrap();
        }
        symlink(root.join("elsewhere"), root.join("project/out")).unwrap();
        symlink(root.join("elsewhere/new"), root.join("project/dangling")).unwrap();
        symlink("inner", root.join("project/in")).unwrap();
        let confined = "write_roots = ['.']";
        let opened = "write_roots = ['.', '../elsewhere']";

        const YES: bool = true;
        const NO: bool = false;
        let cases = [
            (confined, "a.txt", YES),
            (confined, "new/deep/a.txt", YES),
            (confined, "in/a.txt", YES),
            (confined, "out/a.txt", NO),
            (confined, "dangling", NO),
            (confined, "../a.txt", NO),
            (confined, "../project-two/a.txt", NO),
            (confined, "new/../../a.txt", NO),
            (confined, "~/a.txt", NO),
            (confined, "", NO),
            (confined, "in/", NO),
            (confined, "in/a.txt/.", NO),
            (opened, "out/a.txt", YES),
            (opened, "../elsewhere/a.txt", YES),
            (opened, "../a.txt", NO),
            ("write_roots = []", "a.txt", NO),
            ("write_roots = ['/']", "/etc/a.txt", YES),
            // The scratch directory is in the temp directory.
            ("", "../a.txt", YES),
            ("", "/etc/a.txt", NO),
        ];
        for (policy, path, may) in cases {
            let answer = workspace(&root.join("project"), policy).target(path);
            assert_eq!(answer.is_ok(), may, "{policy} {path}: {answer:?}");
        }
        let refused = workspace(&root.join("project"), confined).target("out/a").unwrap_err();
        for part in ["leads to", "elsewhere/a", "project", "write_roots", "[tools]"] {
            assert!(refused.to_string().contains(part), "{refused}");
        }
    }

    #[test]
    fn what_makes_git_run_commands_is_never_written() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        for directory in [".git/hooks", "sub", "store/objects", "store/refs"] {
            std::fs::create_dir_all(root.join(directory)).unwrap();
        }
        std::fs::write(root.join("store/HEAD"), "ref: refs/heads/main\n").unwrap();
        symlink(".git/hooks", root.join("tools")).unwrap();
        symlink("../.git/config", root.join("sub/notes")).unwrap();
        symlink("store", root.join("sub/.git")).unwrap();
        const CASES: &[(&str, bool)] = &[
            (".git/config", false),
            ("./sub/../.git/config", false),
            ("tools/pre-commit", false),
            ("sub/notes", false),
            ("sub/.git/config", false),
            ("sub/.git", false),
            ("store/config", false),
            ("new/.git/config", false),
            ("new/HEAD", false),
            (".agents/tools/x", false),
            (".git/info/exclude", true),
            (".git/../a.txt", false),
            ("sub/a.txt", true),
        ];
        for policy in ["", "bash = 'deny'", "write_roots = ['/']"] {
            for (path, may) in CASES {
                let answer = workspace(&root, policy).target(path);
                assert_eq!(answer.is_ok(), *may, "{policy} {path}: {answer:?}");
            }
        }
        let refused = workspace(&root, "").target("tools/x").unwrap_err().to_string();
        for part in ["tools/x (which leads to", ".git/hooks/x) was not written", "a person"] {
            assert!(refused.contains(part), "{refused}");
        }
    }

    #[test]
    fn our_secrets_are_known() {
        let workspace = workspace(Path::new("/"), "");
        const CASES: &[(&str, bool)] = &[
            ("OPENAI_API_KEY", true),
            ("ANTHROPIC_API_KEY", true),
            ("AGENT_DAEMON_TOKEN", true),
            ("AGENT_DAEMON_TOKEN_FILE", true),
            ("LOCAL_KEY", true),
            ("AGENT_DAEMON_MODEL", false),
            ("PATH", false),
            ("MY_TOKEN", false),
        ];
        for (name, secret) in CASES {
            assert_eq!(workspace.is_secret(OsStr::new(name)), *secret, "{name}");
        }
    }
}
