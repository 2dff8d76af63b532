"""The command `rmqstore`: stores at a terminal and for scripts.

main is the entry; commands has a module for each command, built by command and parameters from the table of options;
completion is what shells complete. reading and following bring rows, incoming those to be written; rows, formats,
bodies, template, output, output_file, partitioned, base64_columns and streams write them; screen, show, shares,
message, findings and progress_bar draw for people; exit_codes has the codes for scripts.
"""
