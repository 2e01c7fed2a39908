# SPDX-License-Identifier: Apache-2.0
"""What the actions of one process share, and what one request may do.

process      the process: state store, engine, leases, worker threads; their release at a stop
workers      its worker threads
budgets      how many operations of a project may ask a service at once
request      one run of an action: project, user, rights in the cloud
inputs       reads what a request says
short_ids    finds the object of a shortened id in a request
rights       requests whose token or trust ends before their work does
lease_guard  ends the calls of an operation with its lease
deadlines    ends the calls of a question at a given time
errors       how an action fails: code, message, remedy; the commands that remedies name
"""
