;;; emacs.el --- The story, told by Emacs' jsonrpc.el  -*- lexical-binding: t -*-

;; emacs --batch --quick --load emacs.el DAEMON ARGUMENT...

;;; Code:

(require 'cl-lib)
(require 'jsonrpc)
(require 'seq)
(require 'subr-x)

(defvar frames nil "What came as events, the newest first.")
(defvar command command-line-args-left "The daemon with its arguments.")
(setq command-line-args-left nil)

(defvar daemon
  (make-process :name "agent-daemon" :command command :connection-type 'pipe
                :coding 'utf-8-emacs-unix :noquery t
                :stderr (get-buffer-create "*agent-daemon stderr*")))

(defvar connection
  (make-instance 'jsonrpc-process-connection
                 :name "agent-daemon"
                 :process daemon
                 :notification-dispatcher
                 (lambda (_connection method params)
                   (when (eq method 'event) (push (plist-get params :result) frames)))))

(defvar nothing (make-hash-table) "The empty object; nil would be null.")

(defun say (format &rest arguments)
  "Print a line of the story: FORMAT with ARGUMENTS."
  (princ (concat (apply #'format format arguments) "\n")))

(defun call (method params)
  "The result of METHOD with PARAMS."
  (jsonrpc-request connection method params :timeout 60))

(defun refused (method params)
  "The code, kind and detail that METHOD with PARAMS is refused with."
  (condition-case problem
      (format "answered %S" (call method params))
    (jsonrpc-error
     (let* ((details (alist-get 'jsonrpc-error-data (cddr problem)))
            (detail (or (plist-get details :field) (plist-get details :runId))))
       (mapconcat (lambda (word) (format "%s" word))
                  (delq nil (list (alist-get 'jsonrpc-error-code (cddr problem))
                                  (plist-get details :kind) detail))
                  " ")))))

(defun timeline (events)
  "The types of EVENTS, repeated deltas once."
  (let (types)
    (dolist (event events)
      (let ((type (plist-get event :type)))
        (unless (or (equal type "tool_update")
                    (and (string-suffix-p "_delta" type) (equal type (car types))))
          (push type types))))
    (string-join (nreverse types) " ")))

(defun gaps (events before)
  "How many of EVENTS do not follow the one before them; BEFORE is the first's."
  (let ((gaps 0))
    (dolist (event events gaps)
      (unless (or (eql (plist-get event :seq) (1+ before)) (eql (plist-get event :prevSeq) before))
        (cl-incf gaps))
      (setq before (plist-get event :seq)))))

(let ((server (call :initialize `(:protocolVersion 1 :clientInfo (:name "emacs")
                                  :processId ,(emacs-pid) :capabilities ,nothing))))
  (jsonrpc-notify connection :initialized nothing)
  (say "initialize: %s %s" (plist-get (plist-get server :serverInfo) :name)
       (plist-get server :protocolVersion)))

(call :subscribe nothing)
(let ((prompt (call :prompt '(:input "run echo hello 你好 🦀"))))
  (say "prompt: %s %s" (plist-get prompt :disposition) (plist-get prompt :runId)))
(say "prompt: %s" (refused :prompt '(:input "again")))
(say "nonsense: %s" (refused :nonsense nothing))
(say "steer: %s" (refused :steer '(:input "x" :expectedRunID 1)))

(let ((idle (call :waitForIdle nothing)))
  (say "waitForIdle: %s %s" (plist-get idle :status)
       (plist-get (plist-get idle :lastRun) :reason)))
(let* ((state (plist-get (call :getState nothing) :state))
       (messages (append (plist-get state :messages) nil)))
  (say "getState: %s %s" (plist-get state :status)
       (mapconcat (lambda (message) (plist-get message :role)) messages " "))
  (say "result: %s"
       (string-trim (plist-get (aref (plist-get (nth 2 messages) :content) 0) :text))))

(let* ((all (reverse frames))
       (subscribed (seq-find (lambda (frame) (equal (plist-get frame :type) "subscribed")) all))
       (events (seq-filter (lambda (frame) (plist-get frame :seq)) all)))
  (say "events: %s" (timeline events))
  (say "gaps: %s" (gaps events (plist-get subscribed :headSeq))))

(say "shutdown: %s" (or (call :shutdown nothing) "null"))
(jsonrpc-notify connection :exit nothing)
(with-timeout (60 (error "The daemon does not end"))
  (while (process-live-p daemon) (accept-process-output daemon 0.05)))
(say "exit: %s" (process-exit-status daemon))

;;; emacs.el ends here
