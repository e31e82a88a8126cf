-- pgbench_history has no primary key: its changes are captured all the same, event by event.
SELECT stream_track('pgbench_accounts'), stream_track('pgbench_tellers'), stream_track('pgbench_branches'),
       stream_track('pgbench_history') \g (format=unaligned tuples_only=on fieldsep=' ')
SELECT stream_sync('60 s') \g (format=unaligned tuples_only=on)
