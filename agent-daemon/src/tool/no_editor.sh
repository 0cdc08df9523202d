#!/bin/sh
# What a command of an agent meets where it would open an editor: there is no terminal.
#
# An editor that the command itself names is meant all the same, where git asks for this one first:
# that of `git -c core.editor=…`, GIT_EDITOR, VISUAL or EDITOR.
todo=
case ${1-} in
*git-rebase-todo) [ -z "${GIT_CONFIG_PARAMETERS-}" ] || todo=$(git config sequence.editor) ;;
esac
core=
[ -z "${GIT_CONFIG_PARAMETERS-}" ] || core=$(git config core.editor)
for editor in "$todo" "${GIT_EDITOR-}" "$core" "${VISUAL-}" "${EDITOR-}"; do
	case $editor in
	'' | *agent-no-editor*) ;;
	*) exec sh -c "$editor \"\$@\"" "$editor" "$@" ;;
	esac
done
cat >&2 <<'END'
No editor can be opened: there is no terminal. Give the text on the command line (git commit -m TEXT),
or name a program that changes the file by itself: GIT_EDITOR=true to take what is proposed,
GIT_SEQUENCE_EDITOR="sed -i ..." for git rebase -i. To change a file yourself, use the edit tool.
END
exit 1
