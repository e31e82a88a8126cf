# What run-tests hands to make, which is good at running things beside each other: it prints what each of them says in one piece, goes
# on when one fails, and ends them all on a signal.
#
#   SUITES   those that run as a whole, with FILES
#   TAP      files of the suite tap
.PHONY: all $(SUITES) $(TAP)
all: $(SUITES) $(TAP)

$(SUITES):
	@test/support/run-suite $@ $(FILES)

$(TAP):
	@test/support/run-suite tap $@
